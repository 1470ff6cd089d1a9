"""Training objectives: which tokens a model predicts, and which tokens it sees to predict each."""
