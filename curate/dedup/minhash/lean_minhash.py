"""Export of MinHash signatures in the format of datasketch's LeanMinHash.

A file is parquet with columns `id` and `signature`, which `LeanMinHash.deserialize(signature, "<")`
reads. The metadata holds the settings of the signatures. Signatures are comparable only if they
were made from the same shingles."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate.dedup.minhash.kernels import lean_buffers
from curate.dedup.minhash.near_duplicates import DedupMinhash
from curate.text.buffers import as_large_string
from llmcurate.base.disk.files import replacing

SETTINGS = b"llmcurate.minhash"  # in the metadata of the schema
SCHEMA = pa.schema([("id", pa.string()), ("signature", pa.binary())])


def write_signatures(path: Path, batches: Iterable[pa.RecordBatch], step: DedupMinhash) -> int:
    """Write the signatures of documents (columns id and text). Return the number of documents. The
    signature of a document without shingles is all ones, as in datasketch."""
    documents = 0
    schema = SCHEMA.with_metadata({SETTINGS: json.dumps(step.comparable()).encode()})
    with replacing(path) as aside, pq.ParquetWriter(aside, schema) as writer:
        for batch in batches:
            values, _ = step.signatures(as_large_string(batch.column("text")))
            signature = pa.array(lean_buffers(values, step.seed), pa.binary())
            ids = batch.column("id").cast(pa.string())
            writer.write_table(pa.table([ids, signature], schema=schema))
            documents += len(batch)
    return documents
