"""Objectives of encoders and encoder-decoders, and heads for tasks."""
