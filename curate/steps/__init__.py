"""Step, CorpusStep and Product, their registry, and recipes made of them."""
