"""The tools of steps over whole corpora: sketches, indexes, phases, shuffle, ranks."""
