"""Learners of vocabularies: BPE, WordPiece, Unigram."""
