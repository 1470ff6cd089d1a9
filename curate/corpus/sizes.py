"""The sizes of tasks: how much of a corpus one task handles, and how much data is in memory at a
time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The sizes that split the decisions of a corpus step into tasks. They do not change the
    decisions. The defaults were measured with benchmarks/bench_resolve.py; tests use small sizes to
    get many tasks."""

    task_partitions: int = 1000  # most partitions in which one task makes ids unique
    id_bytes: int = 128 << 20  # bytes of id files per task (5 million ids); less is one query
    report_bytes: int = 2 << 30  # bytes of corpus/ and rejected/ to count per task: a few seconds

    # The shuffle
    task_documents: int = 200_000  # documents per task at most; a larger sketch file is one task
    partition_pairs: int = 1_000_000  # pairs (key, document) per partition, about
    segment_pairs: int = 2_000_000  # pairs sorted at a time
    read_keys: int = 1_000_000  # keys of sketches read at a time
    bucket_members: int = 1_000_000  # members of buckets read at a time
    batch_candidates: int = 100_000  # candidates whose sketches are read at a time
    segment_bytes: int = 32 << 20  # bytes of rows sorted at a time, in 3 times as much memory
    mapped_bytes: int = 64 << 20  # smallest array, in bytes, that is a memory-mapped file

    # Exact dedup. For 1 million documents tasks take 2.7 times the CPU time of one query, for 16
    # million about the same.
    query_documents: int = 8_000_000  # largest corpus, in documents, that one query handles

    # MinHash
    part_candidates: int = 100_000  # candidates per part, about
    parts: int = (
        4096  # at most, for an even corpus; each part reads from every group of sketch files
    )
    matched_members: int = 16_384  # members whose shingles, some kB each, are mapped at a time
    chunk_candidates: int = 1_000_000  # candidates whose matches are read at a time
    shingled_documents: int = 1000  # documents whose shingles are made at a time

    # Passages
    task_passages: int = 2_000_000  # passages per task, about; a larger sketch file is one task
    slice_rows: int = 1_000_000  # rows of keys per slice, about

    # Suffix arrays
    sort_bytes: int | None = None  # memory to sort a chunk; None: as set in the step
    task_sketch_bytes: int = 1 << 28  # bytes of sketches per task, uncompressed: some 4 s of work
    task_windows: int = 1 << 25  # windows that a task merges, or positions that it joins

    # Embeddings
    task_embeddings: int = 50_000  # per task: some 6 s, and 19 MB for 192 dimensions
    task_cosines: int = 1 << 28  # document-centroid pairs per task: one or two seconds
    task_products: int = 1 << 29  # document pairs per task: some five seconds
