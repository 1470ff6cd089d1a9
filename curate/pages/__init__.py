"""HTML pages: charts, differences, style."""
