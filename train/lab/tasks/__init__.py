"""Labelled texts: reading them, predicting their labels, and scoring the predictions."""
