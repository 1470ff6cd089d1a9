"""Time, memory and money that a plan would take."""
