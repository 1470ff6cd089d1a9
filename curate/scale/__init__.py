"""What a plan would take at another size, from what an earlier run took."""
