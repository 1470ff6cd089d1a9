"""Comparison of a finished run with what other libraries compute: `llmcurate verify`."""
