"""Models as folders that Hugging Face's transformers opens, and back."""
