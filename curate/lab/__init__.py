"""Specialised steps, readers and commands. No other package imports the lab, so its steps and
commands are found through curate/index.json."""
