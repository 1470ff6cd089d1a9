"""How good a text is by a classifier: models trained, evaluated, explained, and the step."""
