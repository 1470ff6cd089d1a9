"""Labelled texts: their reading, their scores, and the labels that a model gives."""
