"""Methods of dedup tried on one corpus: compared with each other, and on planted copies."""
