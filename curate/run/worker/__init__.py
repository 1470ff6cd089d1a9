"""The code that runs in workers: read a partition, apply the steps, write documents."""
