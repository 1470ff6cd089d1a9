"""FastText models applied, without training."""
