"""Verifiers and judges: who says whether claims are supported by evidence."""
