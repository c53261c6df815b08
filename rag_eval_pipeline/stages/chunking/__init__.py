"""Chunking: the pieces that are indexed."""
