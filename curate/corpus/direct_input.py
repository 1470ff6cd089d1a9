"""The input of a product, such as a tokenizer, in a recipe that has no step on documents. The
product reads the input itself, and no copy of the documents is written. Refused documents and
corrupt bytes are counted as in other runs. A document without an id gets the name of its file and
its number in the file. Repeated ids are not made unique, unlike in other runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curate.corpus.manifests import INNER, with_ids
from curate.documents.documents import NUMBER
from curate.formats.events import MOST_NAMED
from curate.formats.inputs import InputPlan
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import Account, PartitionReader, missing_text_message, plan_reading
from llmcurate.base.disk.files import write_text
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal import say

_TOO_LONG = ("record_too_large", "line_too_long")  # rules of readers


class DirectInput:
    """An input whose documents the method `batches` yields. Afterwards, `tally` holds the counts of
    the reading, and `too_long` a line about the longest record refused for its size, or ""."""

    def __init__(self, inputs: InputPlan, read: ReadSettings) -> None:
        self.inputs, self.read = inputs, read
        self.tally: dict[str, Any] = {}
        self.too_long = ""
        self.account = Account()

    @classmethod
    def of_texts(
        cls, inputs: Iterable[str], read: ReadSettings | None = None, quiet: bool = False
    ) -> DirectInput:
        """Return an input whose files hold texts. Unless `quiet`, print notices on the files. Raise
        UsageError if a file holds web pages."""
        read = read or ReadSettings()
        plan = plan_reading(inputs, read)
        if web := [file for file in plan.files if file.holds_pages]:
            raise UsageError(
                f"input {web[0].path} holds web pages, not text: run `llmcurate extract` first"
            )
        for notice in plan.notices:
            say(notice, quiet)
        return cls(plan, read)

    def batches(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield the documents that have text, in input order. `columns` are the columns to yield,
        or None for all. If no document in the whole input has text, raise RunFailed at the end."""
        kept = refused = text_size = 0
        by_rule: Counter[str] = Counter()
        self.account = Account()
        longest, size = "", 0.0  # id and bytes of the longest record that was refused
        documents: list[list[int]] = []  # per partition and slice
        before: dict[int, int] = {}  # by file: documents in its earlier slices
        for part, slices in enumerate(self.inputs.partitions):
            reader = PartitionReader(self.inputs, part, self.read)
            for batch in reader:
                if batch.refused is not None:
                    refused += len(batch.refused)
                    for mark in batch.refused.drops:
                        by_rule[f"read.{mark.rule}"] += len(mark.rows)
                        if mark.rule in _TOO_LONG and mark.values.max() > size:
                            size = mark.values.max()
                            row = mark.rows[mark.values.argmax()]
                            longest = batch.refused.table["id"][int(row)].as_py()
                table = self._with_ordinals(batch.docs.table, batch.ids, part, before)
                without = table.num_rows
                if table["text"].null_count:  # without this test the whole table would be copied
                    table = table.filter(pc.is_valid(table["text"]))
                without -= table.num_rows
                refused += without
                if without:
                    by_rule["read.no_text"] += without
                kept += table.num_rows
                text_size += pc.sum(pc.binary_length(table["text"])).as_py() or 0
                hidden = set(INNER)
                names = [n for n in columns or () if n in table.column_names] or [
                    n for n in table.column_names if n not in hidden
                ]
                yield from table.select(names).to_batches()
            self.account.add(reader.account)
            documents.append(reader.account.documents)
            for piece, count in zip(slices, documents[-1], strict=False):
                before[piece.file] = before.get(piece.file, 0) + count
        self.tally = {
            "read": kept + refused,
            "kept": kept,
            "rejected": refused,
            **self.account.figures(MOST_NAMED),
            "bytes_out": text_size,
            "primary": dict(by_rule),
            "without_documents": self.inputs.without_documents(documents),
        }
        if longest:
            self.too_long = (
                f"{longest} is too long ({int(size):,} bytes); to read it, set"
                f" read.max_record_bytes={int(size)} (by --set or in a recipe)"
            )
        if not kept and longest:
            raise RunFailed(f"no document was read: {self.too_long}")
        if not kept and (line := missing_text_message(self.inputs, self.read)):
            raise RunFailed(f"no document was read: {line}")
        if not kept and self.account.corrupt.count:
            place = self.account.corrupt.places()[0]
            raise RunFailed(f"no document was read: {place.file}: {place.what}")

    def write_corrupt(self, path: Path) -> None:
        """Write the damaged places of the input to `path` as JSONL: file, offset, kind of damage,
        count. A line stands for `count` places in one file, the first of them at the offset. If no
        place is damaged, write nothing."""
        if places := self.account.corrupt.places():
            lines = [json.dumps(asdict(place), ensure_ascii=False) for place in places]
            write_text(path, "\n".join(lines) + "\n")

    def _with_ordinals(
        self, table: pa.Table, ids: pa.Table, part: int, before: dict[int, int]
    ) -> pa.Table:
        if not before or not ids["own"].null_count:
            return table
        files, slices = self.inputs.files, self.inputs.partitions[part]
        new: dict[int, str] = {}
        for row in ids.to_pylist():
            file = slices[row["slice"]].file
            if row["own"] is None and before.get(file):
                new[row[NUMBER]] = f"{files[file].rel}#{before[file] + row['ordinal']}"
        return with_ids(table, new)
