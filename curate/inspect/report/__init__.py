"""report.html and the figures in it."""
