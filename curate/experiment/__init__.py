"""Controlled experiments: is a model better after a change of the data, beyond chance?"""
