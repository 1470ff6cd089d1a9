"""Folders of documents: manifests, and the parts that a stage keeps.

A manifest has documents, checksum and ids of each file. That of FOLDER is FOLDER.json beside it:
readers of a folder of parquet files, polars and `datasets` among them, refuse one that holds
anything else.

A stage keeps two files of a partition with the same rows: `kept`, as a corpus has them, and `keys`,
for later stages alone (the document's number, payloads that are no text yet). So the last stage's
`kept` becomes a part of the corpus as it is, without being read and written anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
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
    """Return where the manifest of a folder is written."""
    return folder.with_name(f"{folder.name}.json")


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


def file_record(path: Path) -> dict[str, int | str]:
    """Return what a manifest records of a part: documents, sha256 of the file, hash of the ids."""
    documents = pq.read_metadata(path).num_rows
    return {"documents": documents, "sha256": file_digest(path), "ids": file_ids_hash(path)}


def names_in_manifest(folder: Path) -> set[str] | None:
    """The names in the manifest of a folder; None without one, or where a file of that name is
    another's."""
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
    """The folder's manifest, written last: a folder that has one is complete. more: what else it
    says. One of the files is in memory at a time."""
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
    """("", a manifest without its files), then name and entry of each file, line by line as
    `write_manifest` lays them out: a million files are 0.6 GB of objects. ValueError where it does
    not end as it should."""
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
    """Name and entry of each file of a folder's manifest, one in memory at a time; none without."""
    with suppress(OSError, ValueError, KeyError):
        files = _streamed(manifest_path(folder))
        if next(files)[1]["version"] == MANIFEST_VERSION:
            yield from files


def kept_ids(out: Path) -> str:
    """A hash of the set of ids in OUT/corpus."""
    return total_ids(str(f["ids"]) for name, f in _streamed(manifest_path(out / "corpus")) if name)


def is_complete(folder: Path, stage: str) -> bool:
    """Return whether the folder holds every file of its manifest, and of that stage."""
    try:
        files = _streamed(manifest_path(folder))
        _, manifest = next(files)
        if (manifest["version"], manifest["stage"]) != (MANIFEST_VERSION, stage):
            return False
        return all((folder / name).exists() for name, _ in files)
    except (OSError, ValueError, KeyError):
        return False


INNER = (NUMBER, *(name for name, _ in PAYLOAD))


def part_path(folder: Path, part: int, kind: str) -> Path:
    """Return where partition `part` of a stage keeps its `kind` of rows."""
    return folder / f"part-{part:05d}.{kind}.parquet"


def part_of(path: Path) -> int:
    """The partition that a file of `part_path` is of."""
    return int(path.name.partition(".")[0].removeprefix("part-"))


def public(table: pa.Table) -> pa.Table:
    """The table without what only a run needs."""
    hidden = [n for n in INNER if n in table.column_names]
    return table.drop_columns(hidden) if hidden else table


def keys(table: pa.Table) -> pa.Table:
    """What `public` leaves out."""
    return table.select([n for n in INNER if n in table.column_names])


def kept_schema(folder: Path, part: int) -> pa.Schema:
    """The schema of what a stage kept, both files together."""
    both = [pq.read_schema(part_path(folder, part, kind)) for kind in ("kept", "keys")]
    return pa.schema([field for s in both for field in unpack(s.empty_table()).schema])


def read_kept(folder: Path, part: int, rows: int) -> Iterator[pa.Table]:
    """Yield what a stage kept of a partition, in batches of at most `rows` rows. A batch lies in
    one row group of either file, since a group ends early if its rows have many bytes."""
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
    """New ids of a partition's documents by number, from the settlement after the first stage."""
    if path is None:
        return {}
    rows = pq.read_table(path, filters=[("part", "=", part)], columns=[NUMBER, "id"])
    return dict(zip(rows[NUMBER].to_pylist(), rows["id"].to_pylist(), strict=True))


def with_ids(table: pa.Table, changed: dict[int, str]) -> pa.Table:
    """The table with final ids."""
    if not changed or table.num_rows == 0:
        return table
    ids = [
        changed.get(n, old)
        for n, old in zip(table[NUMBER].to_pylist(), table["id"].to_pylist(), strict=True)
    ]
    at = table.column_names.index("id")
    return table.set_column(at, "id", pa.array(ids, pa.string()))
