"""Parquet input, cut into slices of row groups and read in batches of bounded size.

A page of a few bytes may unpack to gigabytes, and Arrow unpacks a page of each column at once,
without a bound. So page headers are read first. They are structs of Thrift's compact protocol
(apache/parquet-format, src/main/thrift/parquet.thrift, PageHeader).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from curate.documents.attributes import ATTRIBUTES, DocumentsFile
from curate.documents.documents import CORE, DATE, PAYLOAD
from curate.formats.column_types import (
    arrow_type,
    cast_to,
    json_texts,
    json_value,
    kind_of_type,
)
from curate.formats.columns import (
    EXTRA,
    KNOWN,
    Columns,
    FolderValues,
    SameName,
    as_kind,
    column_name,
    id_text,
    with_extra,
)
from curate.formats.compression import open_input, sniff
from curate.formats.dates import column_date
from curate.formats.events import Corrupt, OmittedValues, Portion
from curate.formats.kinds import reader
from curate.text.decoding import replaced_in
from llmcurate.base.disk.units import counted, format_bytes
from llmcurate.base.errors import UsageError

_DICTIONARY = 2  # PageType.DICTIONARY_PAGE
_MOST_HEADER = 16 << 20  # as in Arrow: statistics in a header may be long
_MOST_DEPTH = 16
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}


class BadPages(ValueError):
    """Raised for page headers that are not valid."""


@dataclass(frozen=True)
class Chunk:
    """The memory that reading a column of a row group takes, in bytes. `name` is the column's name
    up to the first dot. `memory` is a fixed amount, for unpacking. Two estimates of the further
    bytes per row are given: `row` is the average of the page with the largest average, and
    `repeated` is the number if all rows have the largest value of the column's dictionary."""

    name: str
    memory: int
    row: float
    repeated: float


def chunks(file: BinaryIO, group: Any, most: int | None = None, within: str = "") -> list[Chunk]:
    """Return the memory that each column of a row group (pyarrow's metadata) takes, judged from at
    most `most` pages per column. `within` is the prefix of a struct whose fields are columns.
    Raises BadPages if a page header cannot be read."""
    columns = map(group.column, range(group.num_columns))
    try:
        return [_chunk(file, column, group.num_rows, most, within) for column in columns]
    except UnicodeDecodeError:
        raise BadPages("a column's name is no UTF-8") from None


def _chunk(file: BinaryIO, column: Any, rows: int, most: int | None, within: str) -> Chunk:
    at = column.data_page_offset
    if column.dictionary_page_offset:
        at = min(at, column.dictionary_page_offset)
    end = at + column.total_compressed_size
    largest = dictionary = stored = seen = looked = 0
    value = repeated = 0.0
    while at < end and seen < column.num_values and looked != most:
        kind, unpacked, packed, values, size = _header(file, at, column.path_in_schema)
        if packed != unpacked:  # compressed; asking Arrow for an invalid codec aborts the process
            stored = max(stored, packed)
        largest = max(largest, unpacked)
        if kind == _DICTIONARY:
            dictionary = max(dictionary, unpacked)
            repeated = max(repeated, min(unpacked, _WIDTHS.get(column.physical_type, unpacked)))
        else:
            value = max(value, unpacked / max(1, values))
            seen += values
        at += size + packed
        looked += 1
    per_row = max(1.0, column.num_values / max(1, rows))
    name = column.path_in_schema.removeprefix(within).split(".")[0]
    # A stored page, the buffer into which all pages are unpacked, and a dictionary's values.
    memory = stored + largest + dictionary
    return Chunk(name, memory, value * per_row, repeated * per_row)


def _header(file: BinaryIO, at: int, column: str) -> tuple[int, int, int, int, int]:
    """Return (kind, bytes unpacked, bytes stored, number of values, header bytes) of a page."""
    problem = BadPages(f"column `{column}`: no page at byte {at}")
    if at < 0:
        raise problem
    size = 256
    while True:
        file.seek(at)
        data = file.read(size)
        try:
            fields, end = _struct(data, 0)
            break
        except IndexError:
            if len(data) < size or size >= _MOST_HEADER:
                raise problem from None
            size *= 16
        except ValueError:
            raise problem from None
    kind, unpacked, packed = (fields.get(k) for k in (1, 2, 3))
    about = fields.get(5) or fields.get(8) or {}
    values = about.get(1, 0) if isinstance(about, dict) else 0
    for number in (kind, unpacked, packed, values):
        if not isinstance(number, int) or number < 0:
            raise problem
    return kind, unpacked, packed, values, end  # type: ignore[return-value]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number too long")


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    if depth > _MOST_DEPTH:
        raise ValueError("structs too deep")
    fields: dict[int, Any] = {}
    number = 0
    while kind := data[at] & 15:
        step = data[at] >> 4
        at += 1
        if step:
            number += step
        else:
            stated, at = _varint(data, at)
            number = stated >> 1 ^ -(stated & 1)
        fields[number], at = _value(data, at, kind, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # a boolean's kind is its value
        return None, at
    if kind == 3:
        return None, at + 1
    if kind in (4, 5, 6):
        stated, at = _varint(data, at)
        return stated >> 1 ^ -(stated & 1), at
    if kind == 7:
        return None, at + 8
    if kind == 8:
        size, at = _varint(data, at)
        return None, at + size
    if kind == 12:
        return _struct(data, at, depth + 1)
    raise ValueError("a list or map")  # page headers have none


_BUFFER = 1 << 20  # bytes read at once; without a buffer Arrow reads whole columns of a group


def _opened(source: Any, **how: Any) -> DocumentsFile:
    try:
        return DocumentsFile(source, **how)
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("a column's name is no UTF-8") from None
    except pa.ArrowNotImplementedError as error:  # such as a column of 128-bit integers
        raise pa.ArrowInvalid(str(error)) from None


def read_schema(path: str, columns: Columns = Columns()) -> pa.Schema:
    """Return the file's Arrow schema with llmcurate's names of columns, empty for an unreadable
    file. Raises UsageError if no column holds the text, SameName if two columns have one name."""
    try:
        with open_input(path) as f:
            schema: pa.Schema = _opened(f).schema_arrow
    except (pa.ArrowInvalid, OSError):
        with suppress(OSError), open_input(path) as f:
            if (codec := sniff(f)) != "plain":  # a table is read from its end
                raise UsageError(
                    f"input {path}: parquet inside {codec}: decompress the file first"
                ) from None
        return pa.schema([])
    if twice := next((name for name, times in Counter(schema.names).items() if times > 1), None):
        raise SameName(f"input {path}: its schema has the column {twice!r} twice")
    columns = columns.of(schema.names)
    inner = _inner(schema.empty_table(), columns) if columns.paths else {}
    schema = _outer(schema.empty_table(), columns).schema if "text" in inner else schema
    named = [f.with_name(columns.name(f.name)) for f in schema]
    schema = pa.schema([*named, *(pa.field(name, c.type) for name, c in inner.items())])
    if "text" not in schema.names and "payload" not in schema.names:
        fields = [field for top in schema for field in (top, *top.flatten())]
        kinds = {f.name: str(f.type).partition("<")[0] for f in fields}
        raise UsageError(f"input {path}: {columns.missing(kinds)}")
    for name in KNOWN & set(schema.names):
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or (name in ("text", "payload") and not _holds_text(kind)):
            raise UsageError(f"input {path}: column `{name}` is of type {kind}, not text")
    return schema


def _inner(table: pa.Table, columns: Columns) -> dict[str, pa.ChunkedArray]:
    """Return the columns inside structs that `columns` leads to, by llmcurate's names."""
    found = {}
    for ours, (name, *path) in columns.paths.items():
        if columns.input_names[ours] not in table.column_names:
            with suppress(KeyError, pa.ArrowException):
                found[ours] = pc.struct_field(table[name], path)
    return found


def _outer(table: pa.Table, columns: Columns) -> pa.Table:
    """Return the table without the text in its struct, which no step could edit."""
    name, *path = columns.paths["text"]
    rest = _without(table[name].combine_chunks(), path)
    at = table.column_names.index(name)
    return table.remove_column(at) if rest is None else table.set_column(at, name, rest)


def _without(structs: pa.StructArray, path: list[str]) -> pa.StructArray | None:
    kept = dict(zip([field.name for field in structs.type], structs.flatten(), strict=True))
    inner = kept.pop(path[0])
    if path[1:] and (rest := _without(inner, path[1:])) is not None:
        kept[path[0]] = rest
    names = [*kept]
    return (
        pa.StructArray.from_arrays([*kept.values()], names, mask=structs.is_null())
        if kept
        else None
    )


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    binary = (pa.binary(), pa.large_binary(), pa.binary_view())
    return kind in (*binary, pa.string(), pa.large_string(), pa.string_view(), pa.null())


def slices(file: Any, target: int) -> list[tuple[int, int | None]]:
    """Return row-group ranges [first, last) of about `target` bytes; one range if unreadable."""
    try:
        with open_input(file.path) as f:
            meta = _opened(f).metadata
            sizes = [meta.row_group(g).total_byte_size for g in range(meta.num_row_groups)]
    except (pa.ArrowInvalid, OSError):
        return [(0, None)]
    ranges: list[tuple[int, int | None]] = []
    first, weight = 0, 0
    for g, size in enumerate(sizes):
        if weight and weight + size > 4 * target:  # sizes are uncompressed
            ranges.append((first, g))
            first, weight = g, 0
        weight += size
    ranges.append((first, len(sizes)))
    return ranges


def why_no_documents(path: str, columns: Columns) -> str | None:
    """Return why a table has no documents (no column of text), or None if it has documents."""
    try:
        read_schema(path, columns)
    except SameName:
        return None  # planning reports it
    except UsageError as error:
        return str(error).removeprefix(f"input {path}: ")
    return None


@reader("parquet", endings=(".parquet", ".pq"), begins=r"PAR1")
def read(portion: Portion) -> Iterator[pa.Table | Corrupt | OmittedValues]:
    """Yield tables of the portion's row groups; the bytes and rows of each table are bounded."""
    held: list[pa.RecordBatch] = []
    rows = size = 0

    def table() -> pa.Table:
        table = pa.Table.from_batches(held)
        names = portion.columns.of(table.column_names)
        inner = _inner(table, names)
        table = _outer(table, names) if "text" in inner else table
        table = table.rename_columns([names.name(name) for name in table.column_names])
        for name, column in inner.items():
            table = table.append_column(name, column)
        return table.combine_chunks()

    try:
        for batch in _batches(portion):
            full = rows >= portion.rows or size >= portion.bytes
            event = not isinstance(batch, pa.RecordBatch)
            # Columns that are left out change the schema.
            full |= (
                not event and batch.nbytes >= portion.bytes
            )  # a single large batch is not copied
            if held and (full or event or batch.num_columns != held[0].num_columns):
                joined = [table()]
                held, rows, size = [], 0, 0
                yield joined.pop()
            if event:
                yield batch
            else:
                held.append(batch)
                rows, size = rows + len(batch), size + batch.nbytes
    except (pa.ArrowInvalid, OSError):
        if held:  # what was read before the damage
            yield table()
        raise
    if held:
        joined, held = [table()], []
        yield joined.pop()


def _batches(portion: Portion) -> Iterator[Any]:
    """Read the portion's row groups; yield batches of rows, damage, and which columns are omitted.
    If the pages of a row group take too much memory, columns that llmcurate does not know are
    omitted, the largest first. If that is not enough, the row group is reported as damage."""
    path, end = portion.path, portion.end
    with open_input(path) as f:
        # Arrow's own files reuse memory; through Python each column allocates anew.
        source = pa.OSFile(path) if "://" not in path else f
        file = _opened(source, pre_buffer=False, buffer_size=_BUFFER)
        names = portion.columns.of(file.schema_arrow.names)
        known = KNOWN | {path[0] for path in names.paths.values()}
        within = f"{ATTRIBUTES}." if file.is_packed else ""
        for group in range(portion.start, file.num_row_groups if end is None else end):
            about = file.metadata.row_group(group)
            try:
                # In a store each page is a request, so a column's first pages stand for all.
                sizes = chunks(f, about, None if source is not f else 2, within)
            except BadPages as error:
                yield Corrupt(group, f"row group {group}: {error}")
                continue
            memory: Counter[str] = Counter()
            for chunk in sizes:
                memory[chunk.name] += chunk.memory
            total, gone = memory.total(), set()
            for name, size in sorted(memory.items(), key=lambda item: (-item[1], item[0])):
                if total > portion.pages and not {names.name(name), name} & known:
                    total -= size
                    gone.add(name)
            for field in file.schema_arrow if gone else ():
                if field.name.split(".")[0] in gone:
                    ours = column_name(names.name(field.name), field.type)
                    yield OmittedValues(ours, about.num_rows)
            columns = [name for name in memory if name not in gone] if gone else None
            if total > portion.pages:
                damage = (
                    f"row group {group}: its pages take {format_bytes(total)} when they"
                    f" are unpacked, more than {format_bytes(portion.pages)}: write smaller pages,"
                    f" or set read.max_record_bytes={-(-total // 3)}"
                )
                yield Corrupt(group, damage)
                continue
            kept = [chunk for chunk in sizes if chunk.name not in gone]
            by_bytes = portion.bytes / max(1, sum(chunk.row for chunk in kept))
            at_worst = portion.pages / 4 / max(1, sum(chunk.repeated for chunk in kept))
            rows = max(1, min(portion.rows, int(by_bytes), int(at_worst)))
            for batch in file.iter_batches(
                rows, row_groups=[group], columns=columns, use_threads=False
            ):
                for at, field in enumerate(batch.schema):
                    if pa.types.is_nested(field.type) and not _is_valid(batch.column(at)):
                        batch = batch.set_column(at, field, pa.nulls(len(batch), field.type))
                        rows_left = counted(len(batch), "row")
                        damage = f"column `{field.name}`: not UTF-8, left out of {rows_left}"
                        yield Corrupt(group, f"row group {group}: {damage}")
                yield batch


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def conform(
    table: pa.Table, columns: dict[str, str], source: str, of_folders: FolderValues
) -> tuple[pa.Table, list[tuple[int, str]], int]:
    """Return (table, misfits, number of U+FFFD that replace invalid UTF-8). The table has the run's
    columns: known columns are cast to their types, unknown ones to the types in the plan. A misfit
    is the (row, column) of a value that the column cannot hold and that is in `extra` instead. A
    null becomes the column's value in `of_folders` (see `folder_columns`)."""
    rows, replaced = table.num_rows, list[int]()
    source = str(of_folders.get("source") or source)
    text = partial(_text, replaced=replaced)
    out: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, kind in CORE:
        column = table[name] if name in table.column_names else None
        if column is None:
            filler = source if name == "source" else None
            out[name] = pa.repeat(pa.scalar(filler, kind), rows)
        elif kind == DATE:
            out[name] = _dates(column)
        else:
            out[name] = text(_id_texts(column) if name == "id" else column, kind)
    if "source" in table.column_names:
        out["source"] = out["source"].fill_null(source)
    for name, kind in PAYLOAD:
        has = name in table.column_names
        convert = text if pa.types.is_string(kind) else pa.ChunkedArray.cast
        out[name] = convert(table[name], kind) if has else pa.nulls(rows, kind)
    own_names = {column_name(f.name, f.type): f.name for f in table.schema if f.name not in KNOWN}
    rest: dict[int, dict[str, Any]] = {}  # what does not fit, by row
    misfits: list[tuple[int, str]] = []
    for name, planned in columns.items():
        want = arrow_type(planned)
        if name not in own_names:
            out[name] = pa.nulls(rows, want)
            continue
        column = table[own_names[name]]
        if kind_of_type(column.type) == "string":
            column = text(column, pa.string())
        if planned == "json" and name != EXTRA:
            out[name] = json_texts(column)
            continue
        out[name], bad = cast_to(column, want)
        for row in bad:
            if (value := json_value(column[row])) is not None:
                rest.setdefault(row, {})[own_names[name]] = value
                misfits.append((row, name))
    if rest and EXTRA in out:
        texts = out[EXTRA].to_pylist()
        for row, values in rest.items():
            texts[row] = with_extra(texts[row], values)
        out[EXTRA] = pa.array(texts, pa.string())
    for name, value in of_folders.items():
        if name in out and (typed := as_kind(value, columns.get(name, "string"))) is not None:
            value = column_date(typed) if name == "date" else typed
            out[name] = out[name].fill_null(pa.scalar(value, out[name].type))
    return pa.table(out), misfits, sum(replaced)


def _id_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_text = kind_of_type(column.type) == "string"
    if pa.types.is_floating(column.type) or not (is_text or pa.types.is_primitive(column.type)):
        return pa.chunked_array([pa.array(map(id_text, column.to_pylist()), pa.string())])
    return column


def _text(column: pa.ChunkedArray, kind: pa.DataType, replaced: list[int]) -> pa.ChunkedArray:
    try:
        column = column.cast(kind)
        column.validate(full=True)
        return column
    except pa.ArrowInvalid:
        raw = column.cast(pa.large_binary()).to_pylist()
        mended = [None if v is None else v.decode("utf-8", "replace") for v in raw]
        replaced += (replaced_in(m, v) for m, v in zip(mended, raw, strict=True) if m is not None)
        return pa.chunked_array([pa.array(mended, kind)])


def _dates(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            column = column.cast(pa.timestamp(column.type.unit)).cast(
                pa.timestamp("us"), safe=False
            )
        return column.cast(DATE, safe=False)
    if _holds_text(column.type):
        column = _text(column, pa.large_string(), [])
    return pa.chunked_array([pa.array([column_date(v) for v in column.to_pylist()], DATE)])
