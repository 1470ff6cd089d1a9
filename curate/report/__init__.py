"""What happened to every document, as one page."""
