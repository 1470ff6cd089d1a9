"""Export and import of MinHash signatures in the format of datasketch's LeanMinHash.

A file is parquet with columns `id` and `signature`, which `LeanMinHash.deserialize(signature, "<")`
reads. The metadata holds the settings of the signatures. Signatures are comparable only if they
were made from the same shingles, so an imported file must come from llmcurate's own export."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus import indexes
from curate.dedup.minhash.kernels import band_keys, lean_buffers
from curate.text.buffers import as_large_string
from llmcurate.base.disk.files import file_digest, make_folder, replacing, text_digest
from llmcurate.base.disk.seals import seal_folder
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from curate.dedup.minhash.near_duplicates import DedupMinhash

SETTINGS = b"llmcurate.minhash"  # in the metadata of the schema
SCHEMA = pa.schema([("id", pa.string()), ("signature", pa.binary())])
HEAD = np.dtype([("seed", "<i8"), ("values", "<i4"), ("scheme", "u1")])
AFFINE32 = 1
NAME = "dedup_minhash"
_CHECKED = ("bands", "rows", "shingle", "ngram", "normalize", "seed")


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


def read_signatures(signature: pa.Array) -> tuple[np.ndarray, int]:
    """Return the values (uint32[rows, permutations]) and the seed of signatures in LeanMinHash's
    format. Raises ValueError if signatures have an older scheme, or differ in seed or length."""
    buffers = signature.to_pylist()
    if not buffers:
        return np.empty((0, 0), np.uint32), 0
    size = len(buffers[0]) if isinstance(buffers[0], bytes) else 0
    if any(buffer is None or len(buffer) != size for buffer in buffers) or size < HEAD.itemsize:
        raise ValueError("signatures of different lengths")
    rows = np.frombuffer(b"".join(buffers), np.uint8).reshape(len(buffers), size)
    heads = rows[:, : HEAD.itemsize].copy().view(HEAD)[:, 0]
    if (heads["values"] >= 0).any() or (heads["scheme"] != AFFINE32).any():
        raise ValueError("signatures of another scheme than datasketch 2's affine32")
    values = rows[:, HEAD.itemsize :].copy().view("<u4").astype(np.uint32)
    same_seed = (heads["seed"] == heads["seed"][0]).all()
    if values.shape[1] != -int(heads["values"][0]) or not same_seed:
        raise ValueError("signatures of different seeds, or cut short")
    return values, int(heads["seed"][0])


def import_signatures(paths: list[Path], out: Path) -> tuple[int, indexes.IndexRecord]:
    """Create OUT/index/dedup_minhash from files of signatures, for `--against OUT`. Return the
    number of documents and the record of the index. Raises UsageError if a file holds no
    signatures, or if the files were made with different settings."""
    from curate.dedup.minhash.near_duplicates import DedupMinhash

    if not paths:
        raise UsageError("no input: name files of signatures or a folder of them")
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; name a new folder")
    settings = _settings(paths[0])
    folder = out / indexes.FOLDER / NAME
    make_folder(folder / indexes.OWN)
    numbers = [settings[name] for name in ("bands", "rows", "seed")]
    documents = 0
    for part, path in enumerate(paths):
        if _settings(path) != settings:
            raise UsageError(f"{path} was made with other settings than {paths[0]}")
        documents += _import_part(path, folder / f"sketch-{part:05d}.parquet", part, *numbers)
    key = text_digest(" ".join(file_digest(path, "xxh3-128") for path in paths))
    made = indexes.VERSION, out.resolve().name, NAME, NAME, DedupMinhash.version
    record = indexes.IndexRecord(*made, settings, key, False, seal_folder(folder))
    indexes.write_record(folder, record)
    return documents, record


def _settings(path: Path) -> dict[str, Any]:
    from curate.dedup.minhash.near_duplicates import DedupMinhash

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise UsageError(f"{path} is not a parquet file of signatures ({error})") from None
    if not {"id", "signature"} <= {*schema.names}:
        raise UsageError(f"{path} must have the columns id and signature")
    try:
        settings = json.loads(schema.metadata[SETTINGS])
        checked = DedupMinhash.model_validate({name: settings[name] for name in _CHECKED})
    except (KeyError, TypeError, ValueError):
        raise UsageError(
            f"{path} does not say how its shingles were made; use a file from `llmcurate export"
            " --format minhash` with its metadata intact"
        ) from None
    return {**settings, **{name: checked.comparable()[name] for name in _CHECKED}}


def _import_part(path: Path, target: Path, part: int, bands: int, rows: int, seed: int) -> int:
    count = 0
    with replacing(target) as aside, pq.ParquetFile(path) as source:
        writer = None
        for batch in source.iter_batches(10_000, columns=["id", "signature"]):
            try:
                values, own_seed = read_signatures(batch.column("signature"))
                if len(batch) and (values.shape[1] != bands * rows or own_seed != seed):
                    raise ValueError("signatures that do not match the settings in its metadata")
            except ValueError as error:
                raise UsageError(f"{path} contains {error}") from None
            table = _sketches(batch.column("id"), values, part, count, bands, rows)
            writer = writer or pq.ParquetWriter(aside, table.schema)
            writer.write_table(table)
            count += len(batch)
        if writer is None:
            raise UsageError(f"{path} contains no signatures")
        writer.close()
    return count


def _sketches(
    ids: pa.Array, values: np.ndarray, part: int, begin: int, bands: int, rows: int
) -> pa.Table:
    from curate.dedup.minhash.near_duplicates import binary_rows
    from curate.documents.documents import DATE

    keys = band_keys(np.ascontiguousarray(values), bands, rows)
    empty = (values == np.uint32(0xFFFFFFFF)).all(axis=1)  # no shingles, so no bands
    count = len(ids)
    return pa.table(
        {
            "bands": binary_rows(keys, ~empty),
            "url_md5": pa.nulls(count, pa.string()),
            "size": pa.nulls(count, pa.int64()),
            "date": pa.nulls(count, DATE),
            "source": pa.nulls(count, pa.string()),
            "score": pa.nulls(count, pa.float64()),
            "part": pa.repeat(pa.scalar(part, pa.int32()), count),
            "n": pa.array(np.arange(begin, begin + count), pa.int64()),
            "id": ids.cast(pa.string()),
        }
    )
