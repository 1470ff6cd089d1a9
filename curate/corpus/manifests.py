"""Manifests of corpus/ and rejected/: documents, checksum and ids of each file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_128_intdigest

from curate.disk.files import file_digest, write_text

# Readers of a whole folder pass over names that begin with an underscore; the corpus's manifest
# keeps the name that the contract gives it.
MANIFEST_VERSION = 2  # 2: with a hash of the ids of each file
MANIFESTS = {"corpus": "manifest.json", "rejected": "_manifest.json"}


def ids_hash(columns: Iterable[pa.Array | pa.ChunkedArray]) -> str:
    """The sum of the ids' xxh3-128 hashes modulo 2^128: the same for any order of documents."""
    total = 0
    for ids in columns:
        total += sum(map(xxh3_128_intdigest, ids.cast(pa.binary()).to_pylist()))
    return f"{total % 2**128:032x}"


def file_ids_hash(path: Path) -> str:
    with pq.ParquetFile(path) as file:
        return ids_hash(b.column(0) for b in file.iter_batches(columns=["id"], use_threads=False))


def total_ids(hashes: Iterable[str]) -> str:
    """The hash of all ids from those of the files."""
    return f"{sum(int(h, 16) for h in hashes) % 2**128:032x}"


def file_record(path: Path) -> dict[str, Any]:
    """What a manifest says of a part beside its name and the size of its text."""
    documents = pq.read_metadata(path).num_rows
    return {"documents": documents, "sha256": file_digest(path), "ids": file_ids_hash(path)}


def write_manifest(
    folder: Path,
    name: str,
    files: list[dict[str, Any]],
    stage: str,
    more: dict[str, Any] | None = None,
) -> None:
    """The folder's manifest, written last: a folder that has one is complete. more: what else it
    says."""
    entries = {f["name"]: {k: v for k, v in f.items() if k != "name"} for f in files}
    manifest = {
        "version": MANIFEST_VERSION,
        "documents": sum(f["documents"] for f in files),
        "text_bytes": sum(f["text_bytes"] for f in files),
        "stage": stage,
        **(more or {}),
        "files": entries,
    }
    write_text(folder / name, json.dumps(manifest, indent=1) + "\n")


def kept_ids(out: Path) -> str:
    """A hash of the set of ids in OUT/corpus."""
    manifest = json.loads((out / "corpus" / MANIFESTS["corpus"]).read_text(encoding="utf-8"))
    return total_ids(f["ids"] for f in manifest["files"].values())


def is_complete(folder: Path, stage: str) -> bool:
    """Whether the folder holds every file of its manifest, and of that stage."""
    try:
        manifest = json.loads((folder / MANIFESTS[folder.name]).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if manifest["version"] != MANIFEST_VERSION or manifest["stage"] != stage:
        return False
    return all((folder / f).exists() for f in manifest["files"])
