"""Progress bars and tables for the terminal."""
