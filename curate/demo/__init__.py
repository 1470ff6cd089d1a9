"""The demonstration web: a small archive with planted faults and the answers to them."""
