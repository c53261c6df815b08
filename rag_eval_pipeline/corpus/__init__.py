"""What a user hands us: layout, corpus.yaml, gold, importers, validation, fingerprints."""
