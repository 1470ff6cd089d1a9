"""Layouts of token files. A reader knows its files by content and opens one as a ``Part``."""
