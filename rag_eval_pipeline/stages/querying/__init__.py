"""Querying: queries as searched."""
