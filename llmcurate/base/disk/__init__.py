"""Files that are whole or absent, parquet, DuckDB, publishing, units."""
