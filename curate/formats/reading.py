"""Read a partition (slices of input files) as batches of documents in Arrow tables.

With `read.share`, each document is drawn on its own while it is read. With `read.limit`, planning
reads documents once, up to the limit, and cuts the plan after the partition that reaches the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from sys import getsizeof
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.documents.documents import NUMBER, PAYLOAD, Documents
from curate.formats.column_types import schema
from curate.formats.columns import FolderValues, as_kind, folder_columns
from curate.formats.dates import column_date
from curate.formats.events import Corrupt, Damage, Event, OmittedValues, Portion, Row, Skipped
from curate.formats.inputs import InputPlan, Slice, plan_inputs
from curate.formats.jsonl import missing_text, one_object, sample
from curate.formats.kinds import FORMATS
from curate.formats.listing import InputFile
from curate.formats.read_settings import ReadSettings
from llmcurate.base.disk.parquet_writer import row_bytes
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed


@dataclass
class Batch:
    """Documents for the steps, documents refused by the reader, and a table to make the ids of
    both. The table has each document's slice (part of a file) and number in the slice, for
    example."""

    docs: Documents
    refused: Documents | None
    ids: pa.Table  # n, own (null: made from the path), slice, ordinal


@dataclass
class Account:
    """Counts from reading a partition. Carried columns are input columns unknown to llmcurate.

    - `passed_over`: the documents outside the share that is read.
    - `documents`: the number of all documents in each slice.
    - `left_out`: for each carried column, the values that became null.
    - `misfits`: for each carried column, the values that were moved to `extra`.
    - `compared`: the documents whose digest was checked; `differing`: those that differ, by file.
    - `bytes_in`: the size of texts and payloads.
    """

    passed_over: int = 0
    bad_dates: int = 0
    documents: list[int] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    corrupt: Damage = field(default_factory=Damage)
    left_out: Counter[str] = field(default_factory=Counter)
    misfits: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    differing: Counter[str] = field(default_factory=Counter)
    bytes_in: int = 0

    def add(self, other: Account) -> None:
        """Add the counts of another partition, except `documents`."""
        for name in ("passed_over", "bad_dates", "compared", "bytes_in"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("skipped", "left_out", "misfits", "differing"):
            getattr(self, name).update(getattr(other, name))
        self.corrupt.add_all(other.corrupt)

    def figures(self, examples: int) -> dict[str, Any]:
        """Return the counts as JSON values, with at most `examples` damaged places."""
        return {
            "bytes_in": self.bytes_in,
            "passed_over": self.passed_over,
            "bad_dates": self.bad_dates,
            "skipped": dict(self.skipped),
            "corrupt": self.corrupt.total,
            "corrupt_examples": [asdict(place) for place in self.corrupt.places()[:examples]],
            "left_out": dict(self.left_out),
            "misfits": dict(self.misfits),
            "digests_compared": self.compared,
            "digests_differing": dict(self.differing),
        }


ID_SCHEMA = pa.schema(
    [
        (NUMBER, pa.int64()),
        ("own", pa.string()),
        ("slice", pa.int32()),
        ("ordinal", pa.int64()),
    ]
)
NO_DOCUMENT = -1  # number of a row whose ordinal is the document count of a slice


def _events(
    file: InputFile, part: Slice, settings: ReadSettings, columns: dict[str, str]
) -> Iterator[Event | OmittedValues | pa.Table]:
    portion = Portion(
        path=file.path,
        rel=file.rel,
        format=file.format,
        codec=file.codec,
        start=part.start,
        end=part.end,
        kinds=columns,
        columns=settings.named,
        max_record=settings.max_record_bytes,
        max_payload=settings.max_payload_bytes,
        # Room for a page with the longest record: stored, unpacked, and as a dictionary.
        pages=max(Portion.pages, 3 * settings.max_record_bytes),
        rows=settings.batch_rows,
        bytes=settings.batch_bytes,
        digests=settings.digests != "none",
        quote=settings.quote,
    )
    events: Iterator[Event | OmittedValues | pa.Table] = FORMATS[file.format].reader.read(portion)
    return events


ROW_COLUMNS = ("id", "text", "url", "date", "lang", *(name for name, _ in PAYLOAD))


class PartitionReader:
    """An iterator over a partition's batches. `account` has the counts after the last batch."""

    def __init__(
        self,
        plan: InputPlan,
        partition: int,
        settings: ReadSettings,
        on_event: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = plan
        self._on_event = on_event
        self.partition = partition
        self.settings = settings
        self.account = Account()
        self._most = plan.most_documents(partition)
        self._rows: list[Row] = []
        self._ids: list[tuple[int, str | None, int, int]] = []
        self._size = self._bytes_in = 0
        self._next = 0
        self._schema = schema(plan.columns)
        self._stated: FolderValues = {}  # by the folders of the file

    def __iter__(self) -> Iterator[Batch]:
        for number, part in enumerate(self.plan.partitions[self.partition]):
            file = self.plan.files[part.file]
            self.account.documents.append(0)
            self._stated = folder_columns(file.rel, self.settings.named)
            try:
                for event in _events(file, part, self.settings, self.plan.columns):
                    self._on_event()
                    if isinstance(event, pa.Table):
                        yield from self._flush()
                        yield from self._table(event, file, number)
                    elif isinstance(event, Row):
                        self._add(event, file, number)
                        del event
                        if (
                            self._size >= self.settings.batch_bytes
                            or len(self._rows) >= self.settings.batch_rows
                        ):
                            yield from self._flush()
                    else:
                        self._note(event, file)
                    if self._next == self._most:
                        check_unchanged(file)
                        yield from self._flush()
                        return
            except (pa.ArrowInvalid, EOFError) as error:
                self._note(Corrupt(part.start, _first_line(error)), file)
            except OSError as error:
                if error.errno is not None:
                    check_unchanged(file)
                    raise
                self._note(Corrupt(part.start, _first_line(error)), file)
            check_unchanged(file)
        yield from self._flush()

    def _draws(self, own_id: str | None, file: InputFile, number: int, ordinal: int) -> bool:
        if own_id is None:  # earlier slices are counted later, so its place in the slice counts
            start = self.plan.partitions[self.partition][number].start
            own_id = f"{file.rel}#{ordinal}" if start == 0 else f"{file.rel}@{start}#{ordinal}"
        return self.settings.draws(own_id)

    def _note(self, event: Event | OmittedValues, file: InputFile) -> None:
        if isinstance(event, Skipped):
            self.account.skipped[event.kind] += 1
        elif isinstance(event, Corrupt):
            self.account.corrupt.add(file.path, event.offset, event.what, event.count)
        elif isinstance(event, OmittedValues):
            self.account.left_out[event.column] += event.values

    def _add(self, row: Row, file: InputFile, number: int) -> None:
        ordinal = self.account.documents[number]
        self.account.documents[number] += 1
        if not self._draws(row.id, file, number, ordinal):
            self.account.passed_over += 1
            return
        self.account.bad_dates += row.bad_date
        self.account.misfits.update(row.misfits)
        for encoding, characters in (row.replaced or {}).items():
            self.account.corrupt.add_replaced(file.path, row.offset, encoding, characters)
        extra = row.extra or {}
        for name, value in self._stated.items():
            if name in ("lang", "date"):
                of_folder = column_date(value) if name == "date" else value
                setattr(row, name, getattr(row, name) or of_folder)
            elif extra.get(name) is None:
                extra[name] = as_kind(value, self.plan.columns.get(name, "string"))
        extra.setdefault("source", file.rel)
        row.extra = extra
        self._ids.append((self._next, row.id, number, ordinal))
        row.id = row.id if row.id is not None else f"{file.rel}#{ordinal}"
        self._next += 1
        if row.digest is not None:
            self.account.compared += 1
            if row.digest:
                self.account.differing[file.rel] += 1
                if self.settings.digests == "drop":
                    row.reject = row.reject or ("digest_mismatch", None, None, row.digest)
        self._rows.append(row)
        self._bytes_in += len(row.payload or b"") + _utf8_bytes(row.text or "")
        values = (row.id, row.text, row.url, row.payload, row.opt_out_headers, *extra.values())
        self._size += sum(map(getsizeof, values))

    def _flush(self) -> Iterator[Batch]:
        if not self._rows:
            return
        rows, ids = self._rows, self._ids
        self.account.bytes_in += self._bytes_in
        self._rows, self._ids, self._size, self._bytes_in = [], [], 0, 0
        columns = {}
        for name, kind in self._schema:
            if name in ROW_COLUMNS:
                values = [getattr(r, name) for r in rows]
            else:
                values = [(r.extra or {}).get(name) for r in rows]
            columns[name] = _array(values, kind)
        columns[NUMBER] = pa.array([i[0] for i in ids], pa.int64())
        table = self._without_largest(pa.table(columns))
        numbers = pa.table([list(c) for c in zip(*ids, strict=True)], schema=ID_SCHEMA)
        rejects = [r.reject for r in rows]
        del rows, values, columns  # not held while the batch is processed
        yield self._batch(table, numbers, rejects)

    def _table(self, table: pa.Table, file: InputFile, number: int) -> Iterator[Batch]:
        at = self.account.documents[number]
        self.account.documents[number] += table.num_rows
        from curate.formats.parquet import conform

        stated = table["date"] if "date" in table.column_names else None
        table, misfits, replaced = conform(table, self.plan.columns, file.rel, self._stated)
        if replaced:
            group = self.plan.partitions[self.partition][number].start
            self.account.corrupt.add_replaced(file.path, group, "utf-8", replaced)
        rows = at + np.arange(table.num_rows)
        bad = np.zeros(table.num_rows, np.bool_)
        if stated is not None and table["date"].null_count > stated.null_count:
            bad = pc.and_(pc.is_null(table["date"]), pc.is_valid(stated)).to_numpy()
        if self.settings.share is not None:
            names = zip(table["id"].to_pylist(), rows.tolist(), strict=True)
            drawn = [self._draws(own_id, file, number, k) for own_id, k in names]
            self.account.passed_over += len(drawn) - sum(drawn)
            table, rows, bad = table.filter(pa.array(drawn, pa.bool_())), rows[drawn], bad[drawn]
        if self._most is not None:
            rest = self._most - self._next
            table, rows, bad = table.slice(0, rest), rows[:rest], bad[:rest]
        self.account.bad_dates += int(bad.sum())
        read = set(rows.tolist() if misfits else ())
        self.account.misfits.update(name for row, name in misfits if at + row in read)
        size = pc.fill_null(pc.binary_length(table["text"]), 0).to_numpy()
        size = size + pc.fill_null(pc.binary_length(table["payload"]), 0).to_numpy()
        table = self._without_largest(table)
        weight = sum(map(row_bytes, table.columns), np.zeros(table.num_rows, np.int64))
        block = np.cumsum(weight) // self.settings.batch_bytes
        for cut in np.split(np.arange(table.num_rows), np.flatnonzero(np.diff(block)) + 1):
            if len(cut) == 0:
                continue
            part = table.slice(int(cut[0]), len(cut)).combine_chunks()
            sizes = size[cut]
            self.account.bytes_in += int(sizes.sum())
            n = np.arange(self._next, self._next + len(cut))
            self._next += len(cut)
            ordinals = rows[cut]
            own_id = part["id"]
            numbers = pa.table(
                [
                    pa.array(n),
                    own_id,
                    pa.repeat(pa.scalar(number, pa.int32()), len(cut)),
                    ordinals,
                ],
                schema=ID_SCHEMA,
            )
            if own_id.null_count:
                ids = [
                    o if o is not None else f"{file.rel}#{k}"
                    for o, k in zip(own_id.to_pylist(), ordinals.tolist(), strict=True)
                ]
                part = part.set_column(0, "id", pa.array(ids, pa.string()))
            limit = self.settings.max_record_bytes
            absent = pc.and_(pc.is_null(part["text"]), pc.is_null(part["payload"]))
            missing = absent.to_numpy()
            rejects: list[Any] = [None] * len(cut)
            for row in np.flatnonzero((sizes > limit) | missing).tolist():
                rejects[row] = (
                    ("record_too_large", float(sizes[row]), float(limit), None)
                    if sizes[row] > limit
                    else ("no_text", None, None, "the record has no `text` string")
                )
            yield self._batch(part.append_column(NUMBER, pa.array(n)), numbers, rejects)

    def _without_largest(self, table: pa.Table) -> pa.Table:
        limit, names = self.settings.max_carried_bytes, sorted(self.plan.columns)
        sizes = [row_bytes(table[name]) for name in names]
        if not names or sum(sizes, np.zeros(table.num_rows, np.int64)).max(initial=0) <= limit:
            return table
        left = np.array(sizes)
        for row in np.flatnonzero(left.sum(axis=0) > limit):
            while left[:, row].sum() > limit and left[:, row].any():
                left[left[:, row].argmax(), row] = 0
        for name, before, after in zip(names, sizes, left, strict=True):
            if (before == after).all():
                continue
            gone, column = before != after, table[name]
            valid = column.is_valid().to_numpy()
            self.account.left_out[name] += int((gone & valid).sum())
            # Copied: a mask would keep the buffer with the bytes of all values.
            kept = column.take(pa.array(np.arange(len(gone)), mask=gone))
            table = table.set_column(table.column_names.index(name), name, kept)
        return table

    def _batch(self, table: pa.Table, ids: pa.Table, rejects: list[Any]) -> Batch:
        bad = np.array([r is not None for r in rejects], np.bool_)
        if not bad.any():
            return Batch(Documents(table), None, ids)
        refused = Documents(table.filter(pa.array(bad)))
        reasons = [r for r in rejects if r is not None]
        for rule in dict.fromkeys(r[0] for r in reasons):
            mask = np.array([r[0] == rule for r in reasons], np.bool_)
            value = np.array([np.nan if r[1] is None else r[1] for r in reasons], np.float64)
            threshold = next(r[2] for r in reasons if r[0] == rule)
            refused = refused.drop(mask, rule, value, threshold, [r[3] for r in reasons])
        return Batch(Documents(table.filter(pa.array(~bad))), refused, ids)


def missing_text_message(inputs: InputPlan, read: ReadSettings) -> str | None:
    """Return the message for JSONL files without text, with the first file's columns, or None."""
    for file in inputs.files[:1]:
        if file.format == "jsonl":
            with suppress(OSError):
                records = map(read.named.record, sample(file.path, file.codec, 100))
                line = one_object(file.path, file.codec, read.max_record_bytes)
                return line or missing_text(records, read.named)
    return None


def check_unchanged(file: InputFile) -> None:
    """Raise RunFailed if a file has changed since the run was planned."""
    try:
        state, stamp = file.now()
    except FileNotFoundError:
        state = stamp = "no"
    except Exception:  # stores raise errors of many types, and the file has been read
        return
    if file.state and (state, stamp) != (file.state, file.stamp):
        then, now = (text.partition("@")[0] for text in (file.state, state))
        change = "replaced or written to" if then == now else f"{then} bytes then, {now} now"
        raise RunFailed(
            f"input {file.path} has changed since the run was planned ({change}): run the"
            " same command again when nothing writes to the file, to read it anew"
        )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # lone surrogates cannot be stored as UTF-8
        mended = [
            v.encode("utf-8", "replace").decode("utf-8") if isinstance(v, str) else v
            for v in values
        ]
        return pa.array(mended, kind)


def plan_reading(inputs: Iterable[str], read: ReadSettings) -> InputPlan:
    """Return the plan of what a command reads of its inputs. Raises the errors of `plan_inputs`."""
    plan = plan_inputs(
        inputs,
        read.partition_bytes,
        skip_unreadable=read.skip_unreadable,
        columns=read.named,
        choice=read.choice,
    )
    return plan if read.limit is None else first_documents(plan, read, read.limit)


def first_documents(plan: InputPlan, read: ReadSettings, limit: int) -> InputPlan:
    """Return the plan cut after the first `limit` documents, or the whole plan if it has fewer."""
    left = limit
    for part in range(len(plan.partitions)):
        documents = 0
        for batch in PartitionReader(plan, part, read):
            documents += batch.ids.num_rows
            if documents >= left:
                return _cut(plan, part, left, limit)
        left -= documents
    return plan


def _cut(plan: InputPlan, part: int, documents: int, limit: int) -> InputPlan:
    partitions = plan.partitions[: part + 1]
    files = plan.files[: 1 + max(piece.file for slices in partitions for piece in slices)]
    behind = len(plan.partitions) - len(partitions)
    notice = f"only the first {counted(limit, 'document')} of the input are read (read.limit)"
    if behind:
        notice += f"; {behind:,} of {counted(len(plan.partitions), 'partition')} are not opened"
    return replace(
        plan,
        files=files,
        partitions=partitions,
        notices=(*plan.notices, notice),
        documents_of_last=documents,
    )
