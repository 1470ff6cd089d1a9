"""report.html and the figures behind it."""
