"""Rejected records: their schema, how documents that are marked as dropped become records, and how
records are read back. A record is a document as it was before the step that first dropped it. It
has the document's columns, the fields of the first reason as columns, and the list of all reasons
in the order of marking."""

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

FOLDER = "rejected"  # of OUT; also the kind of a stage's files with these records
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
# Columns that keep their values when a document is forgotten: its name and the first reason.
_PUBLIC = frozenset(("id", "url", "source", "date", "lang", "step", "rule", "value", "threshold"))


class Reason(NamedTuple):
    """A reason for dropping a document, with the fields of the Arrow type REASON."""

    step: str
    rule: str
    value: float | None
    threshold: float | None
    detail: str | None

    @property
    def name(self) -> str:
        return f"{self.step}.{self.rule}"


@dataclass(frozen=True)
class Drop:
    """The rows of a batch that one rule marked as dropped."""

    step: str
    rule: str
    rows: np.ndarray  # int64[marked]
    values: np.ndarray  # float64[marked], what the rule measured; NaN: none
    thresholds: np.ndarray  # float64[marked]; NaN: none
    details: tuple[str | None, ...] | None
    entry: pa.LargeStringArray  # the texts of all rows before the step

    @property
    def name(self) -> str:
        return f"{self.step}.{self.rule}"


def marked_rows(drops: Iterable[Drop], rows: int) -> np.ndarray:
    """Return bool[rows]: True for rows with at least one reason."""
    mask = np.zeros(rows, np.bool_)
    for drop in drops:
        mask[drop.rows] = True
    return mask


def rejected_table(table: pa.Table, drops: Sequence[Drop]) -> pa.Table:
    """Return the rows of a batch's table that rules marked as rejected, with the reasons."""
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
    """Return (rows, reasons, origin), with one entry per reason to drop a row: the row (int64), the
    reason (type REASON), and its index in `drops` (int64). Order: by row, then as in `drops`."""
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
    out = pa.array([None] * len(marked), pa.large_string())
    for index in np.unique(primary):
        mask = primary == index
        texts = drops[int(index)].entry.take(pa.array(marked[mask]))
        out = texts if mask.all() else pc.replace_with_mask(out, pa.array(mask), texts)
    return out


def reason_counts(drops: Iterable[Drop], rejected: pa.Table) -> dict[str, dict[str, int]]:
    """Return {`primary`: counts, `reasons`: counts}. Both count rows by rule, named `step.rule`:
    `primary` by the first reason of each row, `reasons` by all reasons."""
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
    """Return one schema for the records of several stages, with the reason columns last."""
    schema = pa.unify_schemas(list(schemas))
    fields = [field for field in schema if field.name not in REASON_COLUMNS]
    return pa.schema([*fields, *(schema.field(name) for name in REASON_COLUMNS)])


def rejected_files(out: Path) -> list[Path]:
    return part_files(out / FOLDER)


def is_rejected_file(path: Path) -> bool:
    return path.parent.name == FOLDER


def reasons_of(row: Mapping[str, Any]) -> list[Reason]:
    """Return all reasons of a record, in order; an empty list for a kept document."""
    return [Reason(**reason) for reason in row.get(REASONS) or ()]


def rules_of(reasons: Iterable[Reason]) -> tuple[str, ...]:
    """Return `step.rule` of the reasons, without repetition, in order."""
    return tuple(dict.fromkeys(reason.name for reason in reasons))


def first_reasons(paths: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """Yield (id, step, rule) of the first reason of every record."""
    for path in paths:
        table = pq.read_table(path, columns=["id", "step", "rule"])
        yield from zip(*(table[name].to_pylist() for name in table.column_names), strict=True)


def reason_codes(lists: pa.ListArray, names: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return (counts, codes): each row's number of reasons (int64[rows]), and each reason's number
    in `names` (int64[reasons]). Adds new reasons (`step.rule`) to `names`. lists: column
    REASONS."""
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


SQL_COLUMNS = f"step, rule, {REASONS}"  # of a record, without values and thresholds
SQL_FIRST_RULE = "step || '.' || rule"


def sql_rules(column: str = REASONS) -> str:
    """Return an SQL expression: the list of `step.rule` of all reasons of a record."""
    return f"[r.step || '.' || r.rule for r in {column}]"


def sql_reasons(source: str, columns: str) -> str:
    """Return a query with one row per reason why a document was dropped: the document's `columns`,
    step, rule, name (`step.rule`), value, threshold and detail. source: a view, maybe with
    WHERE."""
    return f"""SELECT * EXCLUDE (reason_), reason_.step AS step, reason_.rule AS rule,
        reason_.step || '.' || reason_.rule AS name, reason_.value AS value,
        reason_.threshold AS threshold, reason_.detail AS detail
        FROM (SELECT {columns}, unnest({REASONS}) AS reason_ FROM {source})"""


def emptied(table: pa.Table, mask: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Return the records, with document content emptied where `mask` is True. Texts become empty,
    lists and structs null. Names, dates and numbers stay."""
    for number, field in enumerate(table.schema):
        if _holds_words(field):
            values = _emptied_column(table[field.name], mask)
            table = table.set_column(number, field, values)
    return table


def _holds_words(field: pa.Field) -> bool:
    kind = field.type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return field.name not in _PUBLIC and not (plain or pa.types.is_temporal(kind))


def _emptied_column(
    values: pa.ChunkedArray, mask: pa.ChunkedArray | pa.Array
) -> pa.ChunkedArray | pa.Array:
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        pairs = zip(values.to_pylist(), mask.to_pylist(), strict=True)
        return pa.chunked_array([pa.array([None if empty else v for v, empty in pairs], kind)])
    blank = "" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None
    return pc.if_else(mask, pa.scalar(blank, kind), values)
