"""Encoding text with tables and kernels of our own, with the ids that the libraries give."""
