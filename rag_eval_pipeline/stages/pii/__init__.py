"""Pii: personal data."""
