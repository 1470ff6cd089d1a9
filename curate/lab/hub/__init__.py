"""The Hugging Face hub: what a folder of ours is there, its card, and its push."""
