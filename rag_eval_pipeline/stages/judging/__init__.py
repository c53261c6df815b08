"""Judging: who says whether answers are supported and good, and how far that may be believed."""
