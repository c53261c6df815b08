"""Answering: what is said to the one who asked."""
