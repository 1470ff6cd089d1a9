"""Methods, models and tokenizers held against known answers."""
