"""Source: what documents a corpus version holds."""
