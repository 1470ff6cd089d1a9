"""Encode texts into token ids."""
