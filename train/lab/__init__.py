"""The lab: scaling laws, searches, experts, encoders and other specialised parts."""
