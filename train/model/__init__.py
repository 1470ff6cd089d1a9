"""The decoder family: its configuration, its presets and its modules."""
