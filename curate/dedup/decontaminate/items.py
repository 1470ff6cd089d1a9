"""Evaluation sets: files of test items, read to one text an item.

A set is a file of JSON lines, a JSON array, parquet, or plain text with one item a line; each may
be compressed. It is named after its file, or as `NAME=FILE` says. An item's text is the strings of
the chosen fields, in that order, joined by line ends; by default its `text`, else all its strings
but `id`, in the order in which they stand.
"""

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
    """One test item. set: the name of its evaluation set; id: unique within the set."""

    set: str
    id: str
    text: str


def named_files(evals: tuple[str, ...], label: str) -> list[tuple[str, str]]:
    """(name, path) of each set; UsageError where two have one name."""
    files: list[tuple[str, str]] = []
    for argument in evals:
        name, equals, path = argument.partition("=")
        if not equals or "/" in name or Path(argument).is_file():
            name, path = "", argument
        name = name or _stem(path)
        if name in [n for n, _ in files]:
            raise UsageError(f"{label}: two evaluation sets {name!r}; write NAME=FILE for one")
        files.append((name, path))
    return files


def _stem(path: str) -> str:
    """The file's name without its endings for format and compression."""
    name = Path(path).name
    for endings in (PACKING, [e for kind in FORMATS.values() for e in kind.endings]):
        for ending in endings:
            if name.lower().endswith(ending) and len(name) > len(ending):
                name = name[: -len(ending)]
                break
    return name


def read_items(evals: tuple[str, ...], fields: tuple[str, ...], label: str) -> list[Item]:
    """The items of all sets, in order. UsageError where a file cannot be read as items, or none of
    its rows has a chosen field."""
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
            raise UsageError(f"{label}: {path} holds no item with any text{fields_text}")
    return items


def _rows(path: str, fields: tuple[str, ...], label: str) -> Iterator[tuple[str | None, str]]:
    """(own id, text) of every row."""
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
            f"{label}: {path} has none of the fields {', '.join(fields)} (has: {present_fields})"
        )


def _file(path: str, label: str) -> InputFile:
    """The file as the readers see it."""
    if "://" in path:
        raise UsageError(f"{label}: evals {path}: download it first and name the file")
    if not Path(path).is_file():
        raise UsageError(f"{label}: evals {path}: no such file")
    (file,) = find_files([path]).files
    if file.format not in READ:
        raise UsageError(
            f"{label}: evals {path}: not JSON lines, parquet or plain text, but {file.format}"
        )
    return file


def _records(file: InputFile, label: str) -> Iterator[dict[str, Any]]:
    """The objects of JSON lines, or of an array; lines of text, each as one."""
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
    """The text of one item. A number counts in a field that was asked for."""
    if fields:
        strings = [s for name in fields for s in _strings(row.get(name), True)]
    elif isinstance(row.get("text"), str):
        strings = [row["text"]]
    else:
        strings = [s for name, value in row.items() if name != "id" for s in _strings(value, False)]
    return "\n".join(strings).encode("utf-8", "replace").decode()


def _strings(value: Any, numbers: bool) -> Iterator[str]:
    """All strings within a value, in order."""
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
