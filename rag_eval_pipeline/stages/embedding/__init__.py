"""Embedding: vectors of chunks."""
