"""Removal of evaluation items from documents."""
