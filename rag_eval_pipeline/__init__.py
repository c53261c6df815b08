"""Evaluate a retrieval-augmented generation system stage by stage, and say where each piece of evidence was lost."""
