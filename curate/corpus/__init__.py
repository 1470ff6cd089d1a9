"""Tools for steps that need the whole corpus, such as dedup: sketches, indexes, shuffle, ranks."""
