"""The gold of extractors: JSON lines that say what the main text of a page is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from curate.extract.evaluate import DATE
from curate.formats.compression import CorruptData, decompressed_chunks, open_input
from curate.formats.jsonl import BOM, lines, parse
from llmcurate.base.errors import UsageError

LONGEST_ROW = 64 << 20  # bytes of a line
FIELDS = ("title", "author", "date")  # what a page states of itself
_TEXTS = ("record_id", "url", "text", "page_type", "lang", *FIELDS)


@dataclass(frozen=True)
class Gold:
    """What is known of a page. text: all of its main text; with_, without: snippets that belong
    to it and that do not; date: `2024-05-31` or `2024-05`. None where nothing is stated."""

    record_id: str | None
    url: str | None
    text: str | None
    with_: tuple[str, ...]
    without: tuple[str, ...]
    title: str | None
    author: str | None
    date: str | None
    page_type: str | None
    lang: str | None


def record_key(record_id: str) -> str:
    """A record's id without `<>` and `urn:uuid:`, in lower case."""
    return record_id.strip().strip("<>").strip().lower().removeprefix("urn:uuid:")


def read_gold(path: str) -> list[Gold]:
    """The rows of a file of JSON lines, compressed or not. UsageError names the first line that is
    no gold."""
    rows = []
    try:
        with open_input(path) as file:
            numbered = lines(decompressed_chunks(file), 0, None, LONGEST_ROW)
            for number, (_, line, _) in enumerate(numbered, 1):
                if line is None:
                    raise UsageError(f"{path} line {number}: more than {LONGEST_ROW:,} bytes")
                if line.strip():
                    rows.append(_gold(parse(line.removeprefix(BOM)), path, number))
    except CorruptData as error:
        raise UsageError(f"{path}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    if not rows:
        raise UsageError(f"{path} holds no gold")
    return rows


def _gold(row: dict[str, Any] | str, path: str, number: int) -> Gold:
    where = f"{path} line {number}"
    if isinstance(row, str):
        raise UsageError(f"{where}: {row}")
    values: dict[str, Any] = {}
    for name in _TEXTS:
        value = row.get(name)
        if name == "author" and isinstance(value, list) and all(isinstance(v, str) for v in value):
            value = ", ".join(value)
        if not isinstance(value, (str, type(None))):
            raise UsageError(f"{where}: `{name}` is no text")
        values[name] = value if name == "text" or value is None else value.strip() or None
    for name in ("with", "without"):
        value = row.get(name) or []
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise UsageError(f"{where}: `{name}` is no list of texts")
        values["with_" if name == "with" else name] = tuple(value)
    if values["record_id"] is None and values["url"] is None:
        raise UsageError(f"{where}: give `record_id` or `url`")
    if values["text"] is None and not values["with_"] and not values["without"]:
        raise UsageError(f"{where}: give `text`, or snippets in `with` and `without`")
    if values["date"] is not None and not DATE.match(values["date"]):
        raise UsageError(f"{where}: `date` {values['date']}: write it as 2024-05-31 or 2024-05")
    return Gold(**values)
