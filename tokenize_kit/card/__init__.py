"""What a tokenizer's card says beside how it was made: figures on a sample, and a page to read."""
