"""Sizes: how much of a corpus a task takes, and how much of it is in memory at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The sizes that resolves are cut by. No decision depends on any of them.

    The defaults are measured (benchmarks/bench_resolve.py); a test gives small ones, so that a
    small corpus has many tasks.
    """

    task_partitions: int = 1000  # whose ids a task settles, at most
    id_bytes: int = (
        128 << 20
    )  # of files of ids that a task settles, some 5 million; these are one query
    report_bytes: int = 2 << 30  # of corpus/ and rejected/ whose figures a task counts: seconds

    # The shuffle
    task_documents: int = 200_000  # a sketch file that holds more is a task by itself
    partition_pairs: int = 1_000_000  # the pairs (key, document) that a partition should have
    segment_pairs: int = 2_000_000  # the pairs that are ordered at once
    read_keys: int = 1_000_000  # the keys of sketches that are read at once
    bucket_members: int = 1_000_000  # the members of buckets that are read at once
    batch_candidates: int = 100_000  # the candidates whose sketches are read at once
    segment_bytes: int = 32 << 20  # the bytes of rows that are ordered at once; 3 times are held
    mapped_bytes: int = 64 << 20  # an array of so many bytes lies in a mapped file

    # Exact dedup. Of 1 million documents tasks take 2.7 times the CPU of one query, of 16 million
    # about as much.
    query_documents: int = 8_000_000  # a corpus of so many documents is one query

    # MinHash
    part_candidates: int = 100_000  # the candidates that a part should have
    parts: int = 4096  # of an even corpus at most; each part reads of every group of sketch files
    matched_members: int = 16_384  # whose shingles, some kB each, may be mapped at once
    chunk_candidates: int = 1_000_000  # the candidates whose matches are read at once
    shingled_documents: int = 1000  # the documents whose shingles are made at once

    # Passages
    task_passages: int = 2_000_000  # about; a sketch file that holds more is a task by itself
    slice_rows: int = 1_000_000  # the rows that a slice of the keys should have

    # Suffix arrays
    sort_bytes: int | None = None  # that sorting a chunk may take, where not as the step says
    task_sketch_bytes: int = 1 << 28  # of the sketches of a task before compression: some 4 s
    task_windows: int = 1 << 25  # the windows that a task merges, and the positions that it joins

    # Embeddings
    task_embeddings: int = 50_000  # some 6 s, and 19 MB of rows of 192 dimensions
    task_cosines: int = 1 << 28  # of documents to centroids: one or two seconds
    task_products: int = 1 << 29  # of pairs of documents: some five seconds
