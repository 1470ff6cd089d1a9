"""Layouts of token files that few trainers use."""
