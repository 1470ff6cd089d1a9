"""Rejected records: their schema, how marks become rows, and how rows are read back.

A rejected record is a document as it entered the step that dropped it first: its columns, the
columns of the first reason, then the list of all reasons in the order of marking. Everything that
writes or reads OUT/rejected takes names, types and queries from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from llmcurate.base.disk.files import part_files

FOLDER = "rejected"  # of OUT; also the kind of a stage's files that hold these records
REASON = pa.struct(
    [
        ("step", pa.string()),
        ("rule", pa.string()),
        ("value", pa.float64()),
        ("threshold", pa.float64()),
        ("detail", pa.string()),
    ]
)
REASONS = "reasons"
REASON_COLUMNS = (*(field.name for field in REASON), REASONS)
# Columns that keep their values when a document is forgotten: its name and why it went.
_PUBLIC = frozenset(("id", "url", "source", "date", "lang", "step", "rule", "value", "threshold"))


class Reason(NamedTuple):
    """One reason, with the fields of REASON."""

    step: str
    rule: str
    value: float | None
    threshold: float | None
    detail: str | None

    @property
    def name(self) -> str:
        """`step.rule`, the name under which reports and counts know it."""
        return f"{self.step}.{self.rule}"


@dataclass(frozen=True)
class Drop:
    """One rule's marks on a batch.

    rows: int64[marked]; values, thresholds: float64[marked] (NaN for none); entry: the text as it
    entered the step, all rows.
    """

    step: str
    rule: str
    rows: np.ndarray
    values: np.ndarray
    thresholds: np.ndarray
    details: tuple[str | None, ...] | None
    entry: pa.LargeStringArray

    @property
    def name(self) -> str:
        """`step.rule`."""
        return f"{self.step}.{self.rule}"


# Writing.


def marked_rows(drops: Iterable[Drop], rows: int) -> np.ndarray:
    """bool[rows]: rows with at least one reason."""
    mask = np.zeros(rows, np.bool_)
    for drop in drops:
        mask[drop.rows] = True
    return mask


def rejected_table(table: pa.Table, drops: Sequence[Drop]) -> pa.Table:
    """The records of the marked rows of a batch's table."""
    marked = np.flatnonzero(marked_rows(drops, table.num_rows))
    table = table.take(pa.array(marked))
    if len(marked) == 0:
        for field in REASON:
            table = table.append_column(field.name, pa.array([], field.type))
        return table.append_column(REASONS, pa.array([], pa.list_(REASON)))
    rows, reasons, origin = _reasons(drops)
    first = np.searchsorted(rows, marked)
    primary = reasons.take(pa.array(first))
    texts = _entry_texts(drops, marked, origin[first])
    table = table.set_column(table.column_names.index("text"), "text", texts)
    for number, field in enumerate(REASON):
        table = table.append_column(field.name, primary.field(number))
    offsets = np.append(first, len(rows)).astype(np.int32)
    return table.append_column(REASONS, pa.ListArray.from_arrays(pa.array(offsets), reasons))


def _reasons(drops: Sequence[Drop]) -> tuple[np.ndarray, pa.StructArray, np.ndarray]:
    """(row: int64[n], reason: REASON[n], which drop: int64[n]), by row, then order of marking."""
    rows = np.concatenate([drop.rows for drop in drops])
    origin = np.repeat(np.arange(len(drops)), [len(drop.rows) for drop in drops])
    order = np.argsort(rows, kind="stable")
    details: list[str | None] = []
    for drop in drops:
        details.extend(drop.details if drop.details is not None else [None] * len(drop.rows))
    thresholds = np.concatenate([drop.thresholds for drop in drops])
    values = np.concatenate([drop.values for drop in drops])
    columns = {
        "step": pa.array([drop.step for drop in drops], pa.string()).take(pa.array(origin)),
        "rule": pa.array([drop.rule for drop in drops], pa.string()).take(pa.array(origin)),
        "value": pa.array(values, pa.float64(), mask=np.isnan(values)),
        "threshold": pa.array(thresholds, pa.float64(), mask=np.isnan(thresholds)),
        "detail": pa.array(details, pa.string()),
    }
    struct = pa.StructArray.from_arrays([columns[f.name] for f in REASON], fields=list(REASON))
    return rows[order], struct.take(pa.array(order)), origin[order]


def _entry_texts(drops: Sequence[Drop], marked: np.ndarray, primary: np.ndarray) -> pa.Array:
    """The text of each marked row as it entered the step of its primary reason, a drop's index."""
    out = pa.array([None] * len(marked), pa.large_string())
    for index in np.unique(primary):
        mask = primary == index
        texts = drops[int(index)].entry.take(pa.array(marked[mask]))
        out = texts if mask.all() else pc.replace_with_mask(out, pa.array(mask), texts)
    return out


def reason_counts(drops: Iterable[Drop], rejected: pa.Table) -> dict[str, dict[str, int]]:
    """primary: documents by `step.rule` of their first reason; reasons: by any reason."""
    primary = Counter(
        f"{step}.{rule}"
        for step, rule in zip(
            rejected["step"].to_pylist(), rejected["rule"].to_pylist(), strict=True
        )
    )
    reasons: Counter[str] = Counter()
    for drop in drops:
        reasons[drop.name] += len(drop.rows)
    return {"primary": dict(primary), "reasons": dict(reasons)}


def joined_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """One schema of several stages' records: documents and annotations first, reasons last."""
    schema = pa.unify_schemas(list(schemas))
    fields = [field for field in schema if field.name not in REASON_COLUMNS]
    return pa.schema([*fields, *(schema.field(name) for name in REASON_COLUMNS)])


# Reading.


def rejected_files(out: Path) -> list[Path]:
    """The files of OUT/rejected, in order."""
    return part_files(out / FOLDER)


def is_rejected_file(path: Path) -> bool:
    """Whether a file is of an OUT/rejected."""
    return path.parent.name == FOLDER


def reasons_of(row: Mapping[str, Any]) -> list[Reason]:
    """All reasons of a record, the first one first; none of a kept document."""
    return [Reason(**reason) for reason in row.get(REASONS) or ()]


def rules_of(reasons: Iterable[Reason]) -> tuple[str, ...]:
    """`step.rule` of some reasons, each once, the first one first."""
    return tuple(dict.fromkeys(reason.name for reason in reasons))


def first_reasons(paths: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """(id, step, rule) of the first reason of every record."""
    for path in paths:
        table = pq.read_table(path, columns=["id", "step", "rule"])
        yield from zip(*(table[name].to_pylist() for name in table.column_names), strict=True)


def reason_codes(lists: pa.ListArray, names: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """(int64[rows]: how many reasons each row has; int64[reasons]: their numbers in `names`, where
    `step.rule` gets the next number when it is new). lists: the column REASONS."""
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    reasons = lists.flatten()
    parts = []
    for field in ("step", "rule"):
        coded = reasons.field(field).dictionary_encode()
        parts.append((coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False)))
    (steps, step), (rules, rule) = parts
    pairs = step.astype(np.int64) * max(1, len(rules)) + rule
    numbers = np.zeros(max(1, len(steps) * len(rules)), np.int64)
    for pair in np.unique(pairs).tolist():
        name = f"{steps[pair // len(rules)]}.{rules[pair % len(rules)]}"
        numbers[pair] = names.setdefault(name, len(names))
    return sizes, numbers[pairs]


SQL_COLUMNS = f"step, rule, {REASONS}"  # of a record, without the fields of values
SQL_FIRST_RULE = "step || '.' || rule"


def sql_rules(column: str = REASONS) -> str:
    """An SQL list of `step.rule` of all reasons of a record."""
    return f"[r.step || '.' || r.rule for r in {column}]"


def sql_reasons(source: str, columns: str) -> str:
    """A query with one row a reason: columns of its record, and step, rule, name (`step.rule`),
    value, threshold and detail of the reason. source: a view, and a WHERE on it where wanted."""
    return f"""SELECT * EXCLUDE (reason_), reason_.step AS step, reason_.rule AS rule,
        reason_.step || '.' || reason_.rule AS name, reason_.value AS value,
        reason_.threshold AS threshold, reason_.detail AS detail
        FROM (SELECT {columns}, unnest({REASONS}) AS reason_ FROM {source})"""


# Forgetting.


def emptied(table: pa.Table, mask: pa.ChunkedArray | pa.Array) -> pa.Table:
    """The records with everything that a document said taken out where mask: bool[rows]: texts are
    empty, lists and structs null; names, dates and numbers stay."""
    for number, field in enumerate(table.schema):
        if _holds_words(field):
            values = _emptied_column(table[field.name], mask)
            table = table.set_column(number, field, values)
    return table


def _holds_words(field: pa.Field) -> bool:
    """Whether a column may hold words of a document."""
    kind = field.type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return field.name not in _PUBLIC and not (plain or pa.types.is_temporal(kind))


def _emptied_column(
    values: pa.ChunkedArray, mask: pa.ChunkedArray | pa.Array
) -> pa.ChunkedArray | pa.Array:
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        pairs = zip(values.to_pylist(), mask.to_pylist(), strict=True)
        return pa.chunked_array([pa.array([None if gone else v for v, gone in pairs], kind)])
    empty = "" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None
    return pc.if_else(mask, pa.scalar(empty, kind), values)
