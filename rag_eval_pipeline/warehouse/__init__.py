"""Table base, Parquet store, memo, manifests and publishing."""
