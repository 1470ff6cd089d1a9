"""Families of transformers' models that are no plain decoders."""
