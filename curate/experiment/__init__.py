"""Controlled comparisons: is a model better after a change, beyond chance?"""
