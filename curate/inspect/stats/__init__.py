"""Statistics of any corpus."""
