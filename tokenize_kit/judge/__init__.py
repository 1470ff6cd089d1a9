"""Compare tokenizers on texts: count tokens, and find the texts that are not decoded exactly."""
