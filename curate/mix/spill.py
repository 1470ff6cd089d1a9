"""Rows on disk: written in stretches, in memory again as one table of as many as are asked for.

Texts lie in one file as they lie in memory, so that stretches which were read are one array without
a copy; what else a row has lies beside it as Arrow messages. Memory holds a run, and places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.mix.scratch import Scratch
from curate.text.buffers import as_large_string, text_array, text_buffers

Piece = tuple[int, int]  # offset and size in a file


@dataclass(frozen=True)
class Stretch:
    """Where rows that were added together lie."""

    text: Piece
    rest: Piece
    rows: int


@dataclass(frozen=True)
class Held:
    """Rows in memory. texts: what lies between two stretches is a row of its own, so row i of
    `rest`, in which `text` is the length, has the text at place[i]: int64[rows]."""

    texts: pa.LargeStringArray
    place: np.ndarray
    rest: pa.Table

    def take(self, rows: np.ndarray) -> pa.Table:
        """The rows of those numbers (int64[]), copied."""
        table = self.rest.take(pa.array(rows))
        texts = self.texts.take(pa.array(self.place[rows]))
        return table.set_column(table.column_names.index("text"), "text", texts)


class RowFile:
    """`add` rows, `close`, then `read` stretches from any thread; `remove` at the end."""

    def __init__(self, path: Path) -> None:
        self._texts = Scratch(path.with_name(f"{path.name}-texts"))
        self._rest = Scratch(path.with_name(f"{path.name}-rest"))
        self.schema: pa.Schema | None = None

    def add(self, table: pa.Table) -> Stretch:
        """Rows of the columns that the first ones have; a null text counts as an empty one."""
        text = as_large_string(table["text"])
        text = text.fill_null("") if text.null_count else text
        data, offsets = text_buffers(text)
        first, last = int(offsets[0]), int(offsets[-1])
        lengths = pa.array(np.diff(offsets))
        table = table.set_column(table.column_names.index("text"), "text", lengths)
        (batch,) = table.combine_chunks().to_batches()
        self.schema = self.schema or batch.schema
        message = memoryview(batch.serialize())
        at = self._texts.append(data[first:last].data), self._rest.append(message)
        return Stretch((at[0], last - first), (at[1], len(message)), table.num_rows)

    def close(self) -> None:
        """Nothing more comes."""
        self._texts.close()
        self._rest.close()

    def read(self, stretches: list[Stretch]) -> Held:
        """The rows of stretches, in their order. They hold until this thread reads again."""
        room, begins = self._rest.read([s.rest for s in stretches])
        rest = pa.Table.from_batches(
            [
                pa.ipc.read_record_batch(pa.py_buffer(room[at : at + s.rest[1]]), self.schema)
                for at, s in zip(begins, stretches, strict=True)
            ],
            self.schema,
        ).combine_chunks()
        lengths = rest["text"].to_numpy()
        room, begins = self._texts.read([s.text for s in stretches])
        offsets, places, row, at = [], [], 0, 0
        for begin, stretch in zip(begins, stretches, strict=True):
            ends = np.cumsum(lengths[row : row + stretch.rows])
            offsets += [np.array([begin]), begin + ends]
            places.append(np.arange(at, at + stretch.rows))
            row, at = row + stretch.rows, at + stretch.rows + 1
        # `take` reserves memory by the mean length, and twice as much where that was too little.
        # The rest of the room as a last row, which nobody takes, makes the mean too large.
        offsets.append(np.array([len(room)]))
        texts = text_array(np.frombuffer(room, np.uint8), np.concatenate(offsets))
        return Held(texts, np.concatenate(places), rest)

    def empty(self) -> pa.Table:
        """No rows, with the columns of those that were added."""
        assert self.schema is not None
        at = self.schema.get_field_index("text")
        return self.schema.set(at, self.schema.field(at).with_type(pa.large_string())).empty_table()

    def remove(self) -> None:
        """Frees disk and memory."""
        self._texts.remove()
        self._rest.remove()


class Copy:
    """What sources held, for a second reading that decodes nothing: `add` in the order of reading,
    `close`, then `runs`."""

    def __init__(self, path: Path) -> None:
        self._file = RowFile(path)
        self._stretches: list[Stretch] = []

    def add(self, table: pa.Table) -> None:
        self._stretches.append(self._file.add(table))

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()

    def runs(self, size: int) -> Iterator[Held]:
        """All rows, so many bytes of text at a time, about. Each run holds until the next one."""
        run: list[Stretch] = []
        filled = 0
        for stretch in self._stretches:
            if run and filled + stretch.text[1] > size:
                yield self._file.read(run)
                run, filled = [], 0
            run.append(stretch)
            filled += stretch.text[1]
        if run:
            yield self._file.read(run)

    def remove(self) -> None:
        """Frees disk and memory."""
        self._file.remove()


class Spill:
    """`add` rows by part, `close`, then `rows` of any part, from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = RowFile(path)
        self._stretches: dict[int, list[Stretch]] = {}

    def add(self, part: int, table: pa.Table) -> None:
        self._stretches.setdefault(part, []).append(self._file.add(table))

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()

    def rows(self, part: int) -> Held | None:
        """The rows of a part, in the order in which they were added; None: there are none. They
        hold until this thread asks for another part."""
        found = self._stretches.get(part)
        return self._file.read(found) if found else None

    def empty(self) -> pa.Table:
        """No rows, with the columns of those that were added."""
        return self._file.empty()

    def remove(self) -> None:
        """Frees disk and memory."""
        self._file.remove()
