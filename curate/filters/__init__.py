"""One file a published filter."""
