"""Runs of recipes: plan, stages, ledger, decisions, assembly, records."""
