"""The ground of steps over whole corpora: sketches, indexes, phases, shuffle, ranks."""
