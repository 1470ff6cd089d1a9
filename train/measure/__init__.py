"""The cost of a model, on paper: parameters, operations, memory."""
