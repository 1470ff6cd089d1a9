"""Models that score documents: language, quality, perplexity, fastText."""
