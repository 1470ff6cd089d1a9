"""Runs of recipes: plan, stages, ledger (the list of finished work), decisions, records."""
