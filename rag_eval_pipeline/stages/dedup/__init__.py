"""Dedup: near-duplicates."""
