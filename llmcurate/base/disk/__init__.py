"""Files that are complete or absent, parquet files, DuckDB, publishing to a store, units."""
