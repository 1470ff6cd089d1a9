"""Unknown input columns: types are decided at planning time, values are carried to the output.

Types come from parquet schemas and the first lines of JSON files, so that every partition writes
the same schema. A value that does not fit its column is kept as JSON text in the column `extra`.
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
# Names of this tool's own columns; an input column with such a name gets a prefix.
OWN_NAMES = {*REASON_COLUMNS, NUMBER, EXTRA, EDITS, ATTRIBUTES}
# Common names of text columns in other data sets, the likeliest first.
TEXT_NAMES = (
    "text content contents raw_content body article document markdown passage story output".split()
)


@dataclass(frozen=True)
class Columns:
    """Names of input columns that differ from llmcurate's names. `input_names` maps llmcurate's
    name of a column to the input's name."""

    input_names: Mapping[str, str] = field(default_factory=dict)

    def name(self, column: str) -> str:
        """Return llmcurate's name for an input column; `input.NAME` if that name is taken."""
        for ours, name in self.input_names.items():
            if column == name:
                return ours
        return f"input.{column}" if column in self.input_names else column

    def record(self, record: dict[str, Value]) -> dict[str, Value]:
        """Return a record with llmcurate's names as keys."""
        if not self.input_names:
            return record
        return {self.name(key): value for key, value in record.items()}

    def of(self, names: Sequence[str]) -> Columns:
        """Return the names for a table with the columns `names`. If llmcurate wrote the table, its
        columns have llmcurate's names already, so the result is empty `Columns`."""
        lost = not set(self.input_names.values()).issubset(names)
        return Columns() if lost and {name for name, _ in CORE}.issubset(names) else self

    def missing(self, kinds: Mapping[str, str], sizes: Mapping[str, int] | None = None) -> str:
        """Return the error message for an input without a column of text. `kinds` has the kind of
        each column, `sizes` the number of characters of prose in each."""
        name = self.input_names.get("text", "text")
        stated = [(self.input_names.get(n, n) if n in KNOWN else n, k) for n, k in kinds.items()]
        strings = [n for n, kind in stated if kind.endswith("string") and n not in {*KNOWN, name}]
        texts = [n for n in strings if n.lower() not in KNOWN - {"text"}]
        ranks = {text: -rank for rank, text in enumerate(TEXT_NAMES, -len(TEXT_NAMES))}
        order = {n: (ranks.get(n.strip().lower(), 0), (sizes or {}).get(n, 0)) for n in texts}
        likely = max(texts, key=order.__getitem__, default="")
        if sizes is not None and not any(order.get(likely, ())):
            likely = "NAME"
        lacks = f"column {name} does not hold text" if name in dict(stated) else f"no column {name}"
        have = ", ".join(f"{n} ({kind})" for n, kind in stated[:8])
        more = f" and {len(stated) - 8} more" if len(stated) > 8 else ""
        advice = f": give --text-column {shlex.quote(likely)}" if texts else ""
        return f"{lacks}; the files have {have or 'no columns'}{more}{advice}"


class SameName(UsageError):
    """Raised if two columns of a file have the same name."""


class TooManyColumns(UsageError):
    """Raised if a file has more unknown columns than memory should hold."""


def column_name(name: str, kind: pa.DataType | None = None) -> str:
    """Return the name under which an unknown input field is carried along. `kind` is the field's
    type in a parquet file; llmcurate's own `edits` and `extra`, known by type, keep their names."""
    ours = {EDITS: (pa.list_(EDIT),), EXTRA: (pa.string(), pa.large_string())}
    if kind is not None and kind in ours.get(name, ()):
        return name
    return f"input.{name}" if name in OWN_NAMES or not name else name


def kind_of(value: Any) -> str | None:
    """Return the kind of a column that holds a JSON value, None for null."""
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
    """Return True if a column of this kind holds the value unchanged."""
    have = kind_of(value)
    whole = have == "int64" and kind == "double"
    return have in (None, kind) or kind == "json" or (whole and float(value) == value)


def json_text(value: Any) -> str:
    """Return the value as JSON text, as written to `extra` and to columns of mixed types."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def with_extra(text: str | None, values: dict[str, Any]) -> str:
    """Return the JSON text for the column `extra`: the values in `text`, which is the input's own
    `extra`, and the further `values`."""
    try:
        had = json.loads(text) if text else {}
    except ValueError:
        had = text
    return json_text({**(had if isinstance(had, dict) else {EXTRA: had}), **values})


def id_text(value: Any) -> str | None:
    """Return a document's id of any type as text: 1.0 becomes 1, bytes that are not printable UTF-8
    become hexadecimal digits. Null, NaN and empty ids give None."""
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
    """Divide a JSON record among the planned `columns`. Return (record, misfits): the values of
    these columns, with all other values as JSON text under `extra`, and the names of the columns
    whose type does not fit their value."""
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
