"""N-gram language models: training, scoring, buckets."""
