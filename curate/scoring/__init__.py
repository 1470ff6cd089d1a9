"""Models that score documents: language, quality, perplexity and other fastText models."""
