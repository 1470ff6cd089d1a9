"""One process and one partition: read, apply the steps, write."""
