"""The lab: changes of tokenizers and studies of them, which few need. No other room imports it."""
