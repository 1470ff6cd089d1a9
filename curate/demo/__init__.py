"""The demo: a small web archive with planted faults, and the list of these faults."""
