"""Enriching: language of documents."""
