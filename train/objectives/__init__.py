"""Training objectives: the tokens to predict, and the tokens that each one sees."""
