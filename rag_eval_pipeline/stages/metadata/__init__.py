"""Metadata: titles, authors, dates, named entities and relations of documents."""
