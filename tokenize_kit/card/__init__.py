"""Cards of tokenizers: figures on a sample, and a page to read."""
