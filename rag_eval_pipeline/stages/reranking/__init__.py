"""Reranking: the final order."""
