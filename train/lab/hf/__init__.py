"""Hugging Face model families other than plain decoders."""
