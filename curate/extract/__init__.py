"""HTML to main text."""
