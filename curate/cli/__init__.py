"""The `llmcurate` command: one module per group of commands."""
