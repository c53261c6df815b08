"""Parsing: files to text, blocks and tables."""
