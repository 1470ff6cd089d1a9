"""A finished run recomputed by other libraries: `llmcurate verify`."""
