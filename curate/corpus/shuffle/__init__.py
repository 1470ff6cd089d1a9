"""The shuffle that corpus steps split their work with: keys, partitions, buckets, candidates."""
