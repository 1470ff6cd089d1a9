"""Words of scripts without spaces."""
