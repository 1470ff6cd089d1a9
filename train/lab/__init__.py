"""The lab: scaling laws, searches, experts, encoders, which few need. No other room imports it."""
