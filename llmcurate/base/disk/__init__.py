"""Atomic file writes, checksums, parquet, DuckDB, object stores, YAML, and sizes with units."""
