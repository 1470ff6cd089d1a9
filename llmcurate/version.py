"""The version of llmcurate, which is written down only here."""

__version__ = "0.1.0"
