"""Enriching: language of documents and of their parts."""
