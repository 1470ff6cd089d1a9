"""Mixtures: how much of which source, how often each document, in which order."""
