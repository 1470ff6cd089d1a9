"""Filters for source code, licences and single corpora, and one by the user's own function."""
