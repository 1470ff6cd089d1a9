"""Unknown input columns: types are decided at planning time, values are carried to the output.

Types come from parquet schemas and the first lines of JSON files, so that every partition writes
the same schema. A value that does not fit its column is kept as JSON text in the column `extra`.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from curate.documents.attributes import ATTRIBUTES
from curate.documents.documents import CORE, NUMBER, PAYLOAD
from curate.documents.edits import EDIT, EDITS
from curate.documents.rejected import REASON_COLUMNS
from llmcurate.base.errors import UsageError

FolderValues = dict[str, str | int | None]
KNOWN = {name for name, _ in (*CORE, *PAYLOAD)}
EXTRA = "extra"
ROW_FOLDERS = ("lang", "date", "source")  # known columns that folders may state
KEYED = re.compile(r"([A-Za-z_][\w.%-]*)=(.+)")  # a folder as Hive names it
_NUMBER = re.compile(r"0|-?[1-9]\d{0,17}")
# Names of this tool's own columns; an input column with such a name gets a prefix.
OWN_NAMES = {*REASON_COLUMNS, NUMBER, EXTRA, EDITS, ATTRIBUTES}
# Common names of text columns in other data sets, the likeliest first.
TEXT_NAMES = (
    "text content contents raw_content body article document markdown passage story output".split()
)


@dataclass(frozen=True)
class Columns:
    """The names of input columns that differ from llmcurate's names. `input_names` maps llmcurate's
    name of a column to the input's name."""

    input_names: Mapping[str, str] = field(default_factory=dict)

    def name(self, column: str) -> str:
        """Return llmcurate's name for an input column; `input.NAME` if that name is taken."""
        for ours, name in self.input_names.items():
            if column == name:
                return ours
        return f"input.{column}" if column in self.input_names else column

    @property
    def paths(self) -> dict[str, list[str]]:
        """llmcurate's name -> path to a value inside structs, for input names such as `doc.text`.
        A column whose own name has dots is preferred to the path."""
        return {ours: name.split(".") for ours, name in self.input_names.items() if "." in name}

    def record(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record with llmcurate's names as keys."""
        if not self.input_names:
            return record
        named = {self.name(key): value for key, value in record.items()}
        for ours, path in self.paths.items():
            value: Any = record
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None and ours not in named:
                named[ours] = value
                if ours == "text":  # no step could edit it there
                    named[self.name(path[0])] = _without(record[path[0]], path[1:])
        return named

    def of(self, names: Sequence[str]) -> Columns:
        """Return the `Columns` to use for a table with the columns `names`. They are empty if
        llmcurate wrote the table, because its columns have llmcurate's names already."""
        lost = not set(self.input_names.values()).issubset(names)
        return Columns() if lost and {name for name, _ in CORE}.issubset(names) else self

    def missing(self, kinds: Mapping[str, str], sizes: Mapping[str, int] | None = None) -> str:
        """Return the error message for an input without a text column. `kinds` has each column's
        type, `sizes` its characters of prose. The message suggests a column with a common name for
        texts, or else the one with the most prose."""
        name = self.input_names.get("text", "text")
        stated = [(self.input_names.get(n, n) if n in KNOWN else n, k) for n, k in kinds.items()]
        strings = [n for n, kind in stated if kind.endswith("string") and n not in {*KNOWN, name}]
        texts = [n for n in strings if n.lower() not in KNOWN - {"text"}]
        ranks = {text: -rank for rank, text in enumerate(TEXT_NAMES, -len(TEXT_NAMES))}
        order = {
            n: (ranks.get(n.strip().lower().rpartition(".")[2], 0), (sizes or {}).get(n, 0))
            for n in texts
        }
        likely = max(texts, key=order.__getitem__, default="")
        if sizes is not None and not any(order.get(likely, ())):
            likely = "NAME"
        lacks = f"column {name} does not hold text" if name in dict(stated) else f"no column {name}"
        have = ", ".join(f"{n} ({kind})" for n, kind in stated[:8])
        more = f" and {len(stated) - 8} more" if len(stated) > 8 else ""
        advice = f": give --text-column {shlex.quote(likely)}" if texts else ""
        return f"{lacks}; the files have {have or 'no columns'}{more}{advice}"


def _without(record: dict[str, Any], path: list[str]) -> dict[str, Any]:
    name, *rest = path
    kept = {key: value for key, value in record.items() if key != name}
    return kept | {name: _without(record[name], rest)} if rest else kept


def folder_columns(rel: str, columns: Columns = Columns()) -> FolderValues:
    """Return the values in the names `key=value` of a file's folders (as in Hive and Spark), as
    {column name in llmcurate: value}. A whole number becomes an int (in the columns `lang`, `date`
    and `source` it stays text), Hive's null becomes None."""
    values: FolderValues = {}
    for match in filter(None, map(KEYED.fullmatch, rel.split("/")[:-1])):
        key, text = map(unquote, match.groups())
        name = column_name(columns.name(key))
        if name not in KNOWN or name in ROW_FOLDERS:
            value = int(text) if _NUMBER.fullmatch(text) and name not in KNOWN else text
            values[name] = None if text == "__HIVE_DEFAULT_PARTITION__" else value
    return values


def as_kind(value: str | int | None, kind: str) -> str | int | None:
    """Return a value of `folder_columns` as the column type `kind`, or None if it does not fit."""
    if value is None or kind == "string":
        return value if value is None else str(value)
    return json_text(value) if kind == "json" else value if fits(value, kind) else None


class SameName(UsageError):
    """Raised if two columns of a file have the same name."""


class TooManyColumns(UsageError):
    """Raised if a file has more unknown columns than memory should hold."""


def column_name(name: str, kind: pa.DataType | None = None) -> str:
    """Return the output column for an unknown input field: `input.NAME` if llmcurate uses NAME
    itself. `kind` is the field's type in a parquet file: `edits` and `extra` keep their names if
    the type shows that llmcurate wrote them."""
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
