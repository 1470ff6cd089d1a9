"""Specialised steps, readers and commands. curate/index.json registers the lab's steps and
commands: the lab imports the other packages, and no other package imports the lab."""
