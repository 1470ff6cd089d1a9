"""Quality classifiers."""
