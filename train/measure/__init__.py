"""The costs of a model, computed without training: parameters, operations, memory."""
