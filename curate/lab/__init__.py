"""The lab: what few need. It imports the other rooms, and none of them imports it: its steps,
readers and commands join through the index."""
