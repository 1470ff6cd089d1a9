"""Objectives of encoders and encoder-decoders, and of task heads."""
