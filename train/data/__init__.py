"""Which tokens a step trains on."""
