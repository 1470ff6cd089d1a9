"""The Hugging Face hub: pushing a folder with its card."""
