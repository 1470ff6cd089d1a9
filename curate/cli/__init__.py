"""The `llmcurate` command: one module a group of commands."""
