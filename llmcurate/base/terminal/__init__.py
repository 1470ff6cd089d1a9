"""What is printed: lines that a terminal can be given, progress bars and tables."""
