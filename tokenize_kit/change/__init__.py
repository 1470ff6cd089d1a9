"""Change tokenizers: convert them between file formats, extend and prune them."""
