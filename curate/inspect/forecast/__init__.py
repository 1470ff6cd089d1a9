"""Forecasts of the time, memory and money that a plan would take."""
