"""Mixtures of sources: proportions, repetitions and order of the documents."""
