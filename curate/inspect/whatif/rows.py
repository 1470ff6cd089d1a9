"""Rows of stage files: found by their numbers, merged in that order, compared with each other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.disk.parquet_writer import one_array
from curate.documents.documents import NUMBER


def by_number(table: pa.Table) -> pa.Table:
    """The rows in the order of their numbers."""
    numbers = table[NUMBER].to_numpy()
    if len(numbers) == 0 or (np.diff(numbers) > 0).all():
        return table
    return table.take(pa.array(np.argsort(numbers, kind="stable")))


def merged(schema: pa.Schema, tables: list[pa.Table]) -> pa.Table:
    """All rows in one schema, in the order of their numbers."""
    from curate.disk.parquet_writer import conform

    filled = [conform(t, schema) for t in tables if t.num_rows]
    if not filled:
        return schema.empty_table()
    return by_number(pa.concat_tables(filled).combine_chunks())


def places(known: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(at, found): where each wanted number stands among the known ones, which ascend, and
    whether it does; `at` is 0 where it does not."""
    at = np.searchsorted(known, wanted)
    at[at == len(known)] = 0
    found = known[at] == wanted if len(known) else np.zeros(len(wanted), np.bool_)
    return np.where(found, at, 0), found


def same_rows(a: pa.Table, b: pa.Table) -> np.ndarray:
    """bool[rows]: whether a row holds the same values in both tables, which have as many rows; none
    does where their columns differ. An empty list is the same as none."""
    same = np.ones(max(a.num_rows, b.num_rows), np.bool_)  # a table of no columns has no rows
    if set(a.column_names) != set(b.column_names):
        return ~same
    for name in a.column_names:
        one, other = one_array(a[name]), one_array(b[name])
        if one.type != other.type:
            return np.zeros(len(same), np.bool_)
        if not one.equals(other):
            same &= _equal(one, other)
    return same


def _equal(one: pa.Array, other: pa.Array) -> np.ndarray:
    if pa.types.is_nested(one.type):
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.array([(x or None) == (y or None) for x, y in pairs], np.bool_)
    both = pc.and_(one.is_null(nan_is_null=True), other.is_null(nan_is_null=True))
    found: np.ndarray = pc.or_(both, pc.fill_null(pc.equal(one, other), False)).to_numpy(
        zero_copy_only=False
    )
    if pa.types.is_floating(one.type):  # NaN is not null, and 0 is not -0
        found &= one.is_null().to_numpy(False) == other.is_null().to_numpy(False)
        signs = [np.signbit(x.to_numpy(zero_copy_only=False)) for x in (one, other)]
        found &= (signs[0] == signs[1]) | both.to_numpy(zero_copy_only=False)
    return found
