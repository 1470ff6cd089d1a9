"""The shuffle of corpus steps, which brings documents with a common key together in one task."""
