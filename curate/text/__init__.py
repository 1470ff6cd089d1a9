"""Tables of the words, lines and paragraphs of a batch of texts, and kernels that build them."""
