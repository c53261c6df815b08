"""Builds the demo corpus: sources (content/) → documents in every format, and the gold labels that go with them."""
