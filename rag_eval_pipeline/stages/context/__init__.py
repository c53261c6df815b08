"""Context: what the answerer is given."""
