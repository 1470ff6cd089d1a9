"""Documents that hold items of evaluation sets."""
