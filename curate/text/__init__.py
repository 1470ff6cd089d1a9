"""Word, line and paragraph tables of a batch, and the kernels under them."""
