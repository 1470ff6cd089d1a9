"""The documents of a run as pages in the browser."""
