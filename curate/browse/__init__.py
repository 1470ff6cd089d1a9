"""A finished run to look at: pages of documents, their reasons, scores, cuts and copies."""
