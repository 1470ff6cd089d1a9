"""The Python interface: corpora, recipes and their results, and the settings of commands."""
