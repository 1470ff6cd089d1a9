"""Tables of the words, lines and paragraphs of a batch, and the kernels that build them."""
