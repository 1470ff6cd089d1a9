"""Published filters, one per file."""
