"""Pre-tokenisation patterns, compiled to tables that cut UTF-8 text in one pass."""
