"""Read and write tokenizer files of other programs."""
