"""Long runs of coverage-guided fuzzing, started by hand. Not tests; `unit` has what they found and hypothesis on the same path."""
