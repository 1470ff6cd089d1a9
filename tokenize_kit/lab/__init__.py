"""The lab: studies and changes of tokenizers that few users need. No other package imports it."""
