"""The base that curate, tokenize_kit and train build on. The base imports none of them."""
