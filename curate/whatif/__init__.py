"""What other thresholds would have kept, from the scores that a run stored."""
