"""A growing corpus: `llmcurate refresh` adds the documents of new inputs to a new snapshot."""
