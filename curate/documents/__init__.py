"""Documents in Arrow tables, rejected documents, limits, positions."""
