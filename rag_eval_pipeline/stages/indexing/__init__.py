"""Indexing: the vector index."""
