"""Cleaning: boilerplate and Unicode."""
