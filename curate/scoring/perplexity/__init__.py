"""N-gram language models: training, scoring, and buckets by perplexity."""
