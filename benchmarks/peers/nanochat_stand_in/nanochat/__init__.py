"""A package with nanochat's interface, for runs of beside_nanochat.py without nanochat."""
