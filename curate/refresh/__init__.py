"""A corpus that grows: `llmcurate refresh` takes in what is new, into a snapshot of its own."""
