"""Text continued by a trained model."""
