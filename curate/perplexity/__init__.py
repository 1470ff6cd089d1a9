"""n-gram language models: trained, stored, and used to say how expected a text is."""
