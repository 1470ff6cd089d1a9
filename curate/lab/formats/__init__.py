"""Readers of dumps and of LaTeX."""
