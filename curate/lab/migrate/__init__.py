"""Recipes from configurations of other tools (docs/migrate.md)."""
