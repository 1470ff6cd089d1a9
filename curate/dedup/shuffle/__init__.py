"""Which documents share a key, by tasks that any engine maps: a shuffle through files."""
