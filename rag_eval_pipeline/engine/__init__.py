"""Map a function over documents in worker processes with limits."""
