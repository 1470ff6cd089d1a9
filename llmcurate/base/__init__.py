"""What curate, tokenize_kit and train stand on; it imports none of them."""
