"""Unknown input columns: typed once at planning time and carried along.

The types are fixed before any partition is read, from parquet schemas and from the first lines
of JSON files, so that every partition writes the same schema. What does not fit its column later
(another type, a key never seen) is kept as JSON text in the column `extra`.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from curate.documents.attributes import ATTRIBUTES
from curate.documents.documents import CORE, NUMBER, PAYLOAD
from curate.documents.edits import EDIT, EDITS
from curate.documents.rejected import REASON_COLUMNS
from llmcurate.base.errors import UsageError

Value = TypeVar("Value")
KNOWN = {name for name, _ in (*CORE, *PAYLOAD)}
EXTRA = "extra"
# Names that this tool's own columns need; an input column of that name gets a prefix.
TAKEN = {*REASON_COLUMNS, NUMBER, EXTRA, EDITS, ATTRIBUTES}
# Names that columns of texts have elsewhere, the likeliest first.
TEXTS = "content contents raw_content body article document markdown passage story output".split()


@dataclass(frozen=True)
class Columns:
    """Columns of the input that are named otherwise than here. theirs: their name by ours."""

    theirs: Mapping[str, str] = field(default_factory=dict)

    def name(self, column: str) -> str:
        """Our name of a column of the input. One that has a name which another is to have is
        carried along as `input.NAME`."""
        for ours, name in self.theirs.items():
            if column == name:
                return ours
        return f"input.{column}" if column in self.theirs else column

    def record(self, record: dict[str, Value]) -> dict[str, Value]:
        """A record by our names."""
        if not self.theirs:
            return record
        return {self.name(key): value for key, value in record.items()}

    def of(self, names: Sequence[str]) -> Columns:
        """The names for a table of these columns; its own where llmcurate wrote it as a corpus,
        which has its text as `text`."""
        lost = not set(self.theirs.values()).issubset(names)
        return Columns() if lost and {name for name, _ in CORE}.issubset(names) else self

    def missing(self, kinds: Mapping[str, str], sizes: Mapping[str, int] | None = None) -> str:
        """The line on an input without a text. kinds: of its columns; sizes: of their values."""
        name = self.theirs.get("text", "text")
        stated = [(self.theirs.get(n, n) if n in KNOWN else n, k) for n, k in kinds.items()]
        texts = [n for n, kind in stated if kind.endswith("string") and n not in {*KNOWN, name}]
        ranks = {text: -rank for rank, text in enumerate(TEXTS, -len(TEXTS))}
        likely = max(texts, key=lambda n: (ranks.get(n, 0), (sizes or {}).get(n, 0)), default=None)
        lacks = f"column {name} is no text" if name in dict(stated) else f"no column {name}"
        have = ", ".join(f"{n} ({kind})" for n, kind in stated[:8])
        more = f" and {len(stated) - 8} more" if len(stated) > 8 else ""
        advice = f": give --text-column {shlex.quote(likely)}" if likely else ""
        return f"{lacks}; the files have {have or 'no columns'}{more}{advice}"


class SameName(UsageError):
    """Two columns of a file have one name, so that nobody can tell which is meant."""


class TooManyColumns(UsageError):
    """A file makes more columns to carry along than memory should hold."""


def column_name(name: str, kind: pa.DataType | None = None) -> str:
    """The column that an unknown input field becomes. kind: its type in a parquet file, where
    `edits` and `extra` of an earlier run keep their names."""
    ours = {EDITS: (pa.list_(EDIT),), EXTRA: (pa.string(), pa.large_string())}
    if kind is not None and kind in ours.get(name, ()):
        return name
    return f"input.{name}" if name in TAKEN or not name else name


def kind_of(value: Any) -> str | None:
    """The kind that a JSON value asks for; None for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if -(1 << 63) <= value < 1 << 63 else "json"
    if isinstance(value, float):
        return "double"
    return "string" if isinstance(value, str) else "json"


def fits(value: Any, kind: str) -> bool:
    """Return whether the value can stand in a column of that kind as it is."""
    have = kind_of(value)
    whole = have == "int64" and kind == "double"
    return have in (None, kind) or kind == "json" or (whole and float(value) == value)


def json_text(value: Any) -> str:
    """The value as JSON text, as columns of several types and `extra` have it."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def with_extra(text: str | None, values: dict[str, Any]) -> str:
    """The text of `extra` with more values. text: what the input has there."""
    try:
        had = json.loads(text) if text else {}
    except ValueError:
        had = text
    return json_text({**(had if isinstance(had, dict) else {EXTRA: had}), **values})


def id_text(value: Any) -> str | None:
    """An id of any type as text: 1.0 as 1, bytes that are no printable UTF-8 as hexadecimal digits;
    None where there is none (null, NaN, nothing)."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace")
        return (text if text.isprintable() and "\ufffd" not in text else value.hex()) or None
    return None if value is None else str(value) or None


def split_extra(
    record: dict[str, Any], columns: dict[str, str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(the values of one JSON record by planned column, with all others as JSON text under `extra`;
    the columns whose type their value does not fit)."""
    out: dict[str, Any] = {}
    rest = {}
    misfits = []
    for key, value in record.items():
        name = column_name(key)
        kind = columns.get(name)
        if kind is None or not fits(value, kind):
            rest[key] = value
            misfits += [name] if kind else []
        elif kind == "json" and value is not None:
            out[name] = json_text(value)
        else:
            out[name] = float(value) if kind == "double" and value is not None else value
    if rest:
        out[EXTRA] = json_text(rest)
    return out, tuple(misfits)
