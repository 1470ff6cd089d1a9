"""Corpus curation: archives in, clean deduplicated documents out."""
