"""Folders of documents: their manifests, and the files of a stage (a run's pass over documents).
FOLDER.json is the manifest of FOLDER: a list of its files. The manifest lies beside the folder,
because polars and `datasets` refuse a folder with other files than Parquet. For each partition, a
stage writes two files with the same rows: `kept` has the columns of a corpus, and `keys` has
columns that only later stages read. So the `kept` files of the last stage become the corpus and are
not written again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_128_intdigest

from curate.documents.attributes import DocumentsFile, unpack
from curate.documents.documents import NUMBER, PAYLOAD
from llmcurate.base.disk.files import file_digest, replacing

FOLDERS = ("corpus", "rejected")  # of OUT
MANIFEST_VERSION = 3


def manifest_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def ids_hash(columns: Iterable[pa.Array | pa.ChunkedArray]) -> str:
    """Return a hash of a set of ids: the sum of the xxh3-128 hashes of the ids, modulo 2^128. The
    order of the ids does not matter."""
    total = 0
    for ids in columns:
        total += sum(map(xxh3_128_intdigest, ids.cast(pa.binary()).to_pylist()))
    return f"{total % 2**128:032x}"


def file_ids_hash(path: Path) -> str:
    with pq.ParquetFile(path) as file:
        return ids_hash(b.column(0) for b in file.iter_batches(columns=["id"], use_threads=False))


def total_ids(hashes: Iterable[str]) -> str:
    return f"{sum(int(h, 16) for h in hashes) % 2**128:032x}"


def file_record(path: Path) -> dict[str, int | str]:
    """Return the entry of a file in a manifest: documents, sha256 of the file, hash of the ids."""
    documents = pq.read_metadata(path).num_rows
    return {"documents": documents, "sha256": file_digest(path), "ids": file_ids_hash(path)}


def names_in_manifest(folder: Path) -> set[str] | None:
    """Return the names of top-level values in a folder's manifest; None if it is not valid."""
    try:
        content = json.loads(manifest_path(folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or not {"version", "stage", "files"} <= content.keys():
        return None
    files = content["files"]
    whole = isinstance(files, dict) and all(isinstance(entry, dict) for entry in files.values())
    return {*content} if whole else None


def write_manifest(
    folder: Path, files: Iterable[dict[str, int | str]], stage: str, **more: Any
) -> None:
    """Write the manifest of a folder. All files of the folder must be complete, so that a folder
    with a manifest is complete. `files` holds the entries of the files and is read one at a time.
    `more` are further top-level values."""
    documents = text_bytes = 0
    with TemporaryFile("w+", encoding="utf-8", dir=folder.parent) as entries:
        for number, file in enumerate(files):
            documents += int(file["documents"])
            text_bytes += int(file["text_bytes"])
            values = (f'   "{k}": {json.dumps(v)}' for k, v in file.items() if k != "name")
            entry = ",\n".join(values)
            entries.write(f"{',' * (number > 0)}\n  {json.dumps(file['name'])}: {{\n{entry}\n  }}")
        head = {
            "version": MANIFEST_VERSION,
            "documents": documents,
            "text_bytes": text_bytes,
            "stage": stage,
            **more,
            "files": {},
        }
        begin = json.dumps(head, indent=1).removesuffix("}\n}")
        end = "\n }\n}\n" if entries.tell() else "}\n}\n"
        entries.seek(0)
        with (
            replacing(manifest_path(folder)) as aside,
            aside.open("w", encoding="utf-8") as manifest,
        ):
            manifest.write(begin)
            shutil.copyfileobj(entries, manifest)
            manifest.write(end)


def _streamed(path: Path) -> Iterator[tuple[str, dict[str, int | str]]]:
    """Yield ("", the manifest without its files), then (name, entry) of each file. The manifest is
    read line by line, because a million entries would take 0.6 GB. Raise ValueError if the manifest
    is cut short."""
    line = ""
    with path.open(encoding="utf-8") as lines:
        head = "".join(takewhile(lambda line: not line.startswith(' "files": {'), lines))
        yield "", json.loads(head.rstrip().removesuffix(",") + "}")
        name, entry = "", ""
        for line in lines:
            if line.startswith('  "'):
                name, entry = json.loads(line.strip().removesuffix(": {")), "{"
            elif line.startswith("  }"):
                yield name, json.loads(entry + "}")
            else:
                entry += line
    if line != "}\n":
        raise ValueError(f"{path} is cut short")


def entries(folder: Path) -> Iterator[tuple[str, dict[str, int | str]]]:
    """Yield (name, entry) of each file in a folder's manifest; nothing if it cannot be read."""
    with suppress(OSError, ValueError, KeyError):
        files = _streamed(manifest_path(folder))
        if next(files)[1]["version"] == MANIFEST_VERSION:
            yield from files


def kept_ids(out: Path) -> str:
    """Return the hash of the set of ids in OUT/corpus."""
    return total_ids(str(f["ids"]) for name, f in _streamed(manifest_path(out / "corpus")) if name)


def is_complete(folder: Path, stage: str, exists: Callable[[Path], bool] = Path.exists) -> bool:
    """Return True if the folder's manifest was written by this stage and all files in it exist."""
    try:
        files = _streamed(manifest_path(folder))
        _, manifest = next(files)
        if (manifest["version"], manifest["stage"]) != (MANIFEST_VERSION, stage):
            return False
        return all(exists(folder / name) for name, _ in files)
    except (OSError, ValueError, KeyError):
        return False


INNER = (NUMBER, *(name for name, _ in PAYLOAD))


def part_path(folder: Path, part: int, kind: str) -> Path:
    """Return the path of the file `kind` (such as `kept`) that a stage writes for one partition."""
    return folder / f"part-{part:05d}.{kind}.parquet"


def part_of(path: Path) -> int:
    return int(path.name.partition(".")[0].removeprefix("part-"))


def public(table: pa.Table) -> pa.Table:
    """Return the table without the columns that only later stages of a run need."""
    hidden = [n for n in INNER if n in table.column_names]
    return table.drop_columns(hidden) if hidden else table


def keys(table: pa.Table) -> pa.Table:
    """Return only the columns that later stages of a run need, which `public` leaves out."""
    return table.select([n for n in INNER if n in table.column_names])


def kept_schema(folder: Path, part: int) -> pa.Schema:
    """Return the schema of a stage's kept rows: the columns of its files `kept` and `keys`."""
    both = [pq.read_schema(part_path(folder, part, kind)) for kind in ("kept", "keys")]
    return pa.schema([field for s in both for field in unpack(s.empty_table()).schema])


def read_kept(folder: Path, part: int, rows: int) -> Iterator[pa.Table]:
    """Yield the rows that a stage kept of a partition, as tables of at most `rows` rows. No table
    spans two row groups of a file."""
    with (
        DocumentsFile(part_path(folder, part, "kept")) as kept,
        pq.ParquetFile(part_path(folder, part, "keys")) as inner,
    ):
        names = [*kept.schema_arrow.names, *inner.schema_arrow.names]
        of_kept, of_inner = _by_group(kept, rows), _by_group(inner, rows)
        a, b = next(of_kept, None), next(of_inner, None)
        while a is not None and b is not None:
            count = min(len(a), len(b))
            columns = [*a.slice(0, count).columns, *b.slice(0, count).columns]
            yield pa.Table.from_arrays(columns, names)
            a = a.slice(count) if len(a) > count else next(of_kept, None)
            b = b.slice(count) if len(b) > count else next(of_inner, None)


def _by_group(file: pq.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group], use_threads=False)


def changed_ids(path: str | None, part: int) -> dict[int, str]:
    """Return {number of a document: its new id} for all documents of a partition whose ids were
    changed because others had the same id. `path` is the file of new ids, or None if no id was
    changed."""
    if path is None:
        return {}
    rows = pq.read_table(path, filters=[("part", "=", part)], columns=[NUMBER, "id"])
    return dict(zip(rows[NUMBER].to_pylist(), rows["id"].to_pylist(), strict=True))


def with_ids(table: pa.Table, changed: dict[int, str]) -> pa.Table:
    """Return the table with the new ids. `changed` is {number of a document: its new id}."""
    if not changed or table.num_rows == 0:
        return table
    ids = [
        changed.get(n, old)
        for n, old in zip(table[NUMBER].to_pylist(), table["id"].to_pylist(), strict=True)
    ]
    at = table.column_names.index("id")
    return table.set_column(at, "id", pa.array(ids, pa.string()))
