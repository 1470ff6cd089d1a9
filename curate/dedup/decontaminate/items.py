"""Evaluation sets: files of test items, read as one text per item.

A set is a file of JSONL, a JSON array, parquet, or plain text with one item per line, possibly
compressed. The name of a set is the name of its file, or NAME if the set is given as `NAME=FILE`.
The text of an item is the strings of the chosen fields, in that order, joined by line ends. If no
fields are chosen it is the field `text`, or else all strings except `id`, in file order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.formats.kinds import FORMATS, PACKING
from curate.formats.listing import InputFile, find_files
from llmcurate.base.errors import UsageError

READ = ("jsonl", "parquet", "text")
MOST_BYTES = 1 << 30  # of an item
_ROWS = 1000


@dataclass(frozen=True)
class Item:
    """One test item. `set` is the name of its evaluation set. `id` is unique within the set."""

    set: str
    id: str
    text: str


def named_files(evals: tuple[str, ...], label: str) -> list[tuple[str, str]]:
    """Return the name and path of each set. Raises UsageError if two sets have the same name."""
    files: list[tuple[str, str]] = []
    for argument in evals:
        name, equals, path = argument.partition("=")
        if not equals or "/" in name or Path(argument).is_file():
            name, path = "", argument
        name = name or _stem(path)
        if name in [n for n, _ in files]:
            raise UsageError(f"{label}: two evaluation sets are named {name!r}; use NAME=FILE")
        files.append((name, path))
    return files


def _stem(path: str) -> str:
    name = Path(path).name
    for endings in (PACKING, [e for kind in FORMATS.values() for e in kind.endings]):
        for ending in endings:
            if name.lower().endswith(ending) and len(name) > len(ending):
                name = name[: -len(ending)]
                break
    return name


def read_items(evals: tuple[str, ...], fields: tuple[str, ...], label: str) -> list[Item]:
    """Return the items of all sets, in order. Raises UsageError if a file has no readable items."""
    items: list[Item] = []
    for name, path in named_files(evals, label):
        before = len(items)
        used: set[str] = set()
        for nth, (own_id, text) in enumerate(_rows(path, fields, label)):
            base = own_id if own_id is not None else f"{Path(path).name}#{nth}"
            key, copies = base, 1
            while key in used:
                copies += 1
                key = f"{base}~{copies}"
            used.add(key)
            items.append(Item(name, key, text))
        if not any(item.text.strip() for item in items[before:]):
            fields_text = f" in the fields {', '.join(fields)}" if fields else ""
            raise UsageError(f"{label}: {path} has no item with text{fields_text}")
    return items


def _rows(path: str, fields: tuple[str, ...], label: str) -> Iterator[tuple[str | None, str]]:
    file = _file(path, label)
    if file.format == "parquet":
        rows = _parquet(path, label)
    else:
        rows = _records(file, label)
    columns: set[str] = set()
    missed = True
    for row in rows:
        if fields:
            columns.update(row)
            missed = missed and not any(f in row for f in fields)
        own_id = row.get("id")
        usable = isinstance(own_id, (str, int)) and not isinstance(own_id, bool) and own_id != ""
        yield str(own_id) if usable else None, _text(row, fields)
    if fields and missed:
        present_fields = ", ".join(sorted(columns)) or "no row"
        raise UsageError(
            f"{label}: {path} has none of the fields {', '.join(fields)}; fields: {present_fields}"
        )


def _file(path: str, label: str) -> InputFile:
    if "://" in path:
        raise UsageError(f"{label}: evals {path} is a URL; download it and name the file")
    if not Path(path).is_file():
        raise UsageError(f"{label}: evals {path}: no such file")
    (file,) = find_files([path]).files
    if file.format not in READ:
        raise UsageError(
            f"{label}: evals {path} must be JSONL, parquet or plain text, not {file.format}"
        )
    return file


def _records(file: InputFile, label: str) -> Iterator[dict[str, Any]]:
    from curate.formats.jsonl import records

    def damaged(offset: int, problem: str) -> None:
        raise UsageError(f"{label}: evals {file.path} is damaged: {problem} at byte {offset}")

    found = records(file.path, file.codec, MOST_BYTES, damaged, text=file.format == "text")
    for nth, row in enumerate(found, 1):
        if isinstance(row, str):
            raise UsageError(f"{label}: evals {file.path}, record {nth}: {row}")
        yield row


def _parquet(path: str, label: str) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"{label}: evals {path}: {str(error).splitlines()[0]}") from None
    with source:
        names = [
            f.name
            for f in source.schema_arrow
            if not (pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type))
        ]
        for batch in source.iter_batches(_ROWS, columns=names, use_threads=False):
            yield from batch.to_pylist()


def _text(row: dict[str, Any], fields: tuple[str, ...]) -> str:
    if fields:
        strings = [s for name in fields for s in _strings(row.get(name), True)]
    elif isinstance(row.get("text"), str):
        strings = [row["text"]]
    else:
        strings = [s for name, value in row.items() if name != "id" for s in _strings(value, False)]
    return "\n".join(strings).encode("utf-8", "replace").decode()


def _strings(value: Any, numbers: bool) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if numbers:
            yield str(value)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings(part, numbers)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part, numbers)
