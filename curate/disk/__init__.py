"""Files and folders: names that stay inside, removal."""
