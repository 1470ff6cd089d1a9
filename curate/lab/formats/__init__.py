"""Readers of LaTeX sources, MediaWiki and Stack Exchange dumps, and WAT files."""
