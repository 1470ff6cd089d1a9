"""Fetch files from the web and from object stores: resume cut downloads and verify checksums."""
