"""The embedded demo: a small web that the project writes itself."""
