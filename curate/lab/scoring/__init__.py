"""Models that score texts by other tools' weights."""
