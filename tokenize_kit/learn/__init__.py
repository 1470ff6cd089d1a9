"""Training of tokenizers: BPE, WordPiece and Unigram."""
