"""Ratios against named peers, run by `make bench`. Not tests: nothing here passes or fails."""
