"""Files that are whole or absent, parquet files, DuckDB, publishing to a store, units of sizes."""
