"""Export of models to folders that Hugging Face's transformers opens, and import from them."""
