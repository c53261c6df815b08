"""Retrieval: lanes and their lists."""
