"""The lab, with what few users need: scaling laws, searches, experts, encoders and more."""
