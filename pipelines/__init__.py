"""Recipes and the demo web, installed as package data."""
