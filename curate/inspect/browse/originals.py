"""The text of a document as it was before the first edit, and what the edits made of it.

Edits are recorded as positions in the input of each step; the text they cut is gone from the
corpus. The original stands in the stage before, or, for the first stage, in the run's input, which
is read again up to the document. It is shown only where the edits lead from it to the stored text,
byte by byte: so a file that has changed since is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq

from curate.corpus.manifests import part_path
from curate.documents.edits import Edit
from curate.run.plan import stage_folder
from curate.run.records import StageRecord
from curate.steps.contracts import fitting
from llmcurate.base.errors import LlmcurateError

MOST_BYTES = 4 << 20  # longer texts are shown without what was cut


@dataclass(frozen=True)
class Run:
    """A piece of text. cut, put: the rule that took it out, or put it in; both: a later step took
    out what an earlier one had put in."""

    text: bytes
    cut: str | None = None
    put: str | None = None


def replay(original: bytes, edits: Iterable[Edit], final: bytes) -> list[Run] | None:
    """The original with what each edit cut and put; None where that does not give the final text.

    edits: step by step, their positions in the input of their step.
    """
    runs = [Run(original)]
    for _, of_step in groupby(edits, key=lambda edit: edit.step):
        runs = _apply(runs, list(of_step))
    return runs if b"".join(r.text for r in runs if not r.cut) == final else None


def _apply(runs: list[Run], edits: list[Edit]) -> list[Run]:
    pieces: list[Run] = []
    # Edits of the same position stay in their order.
    pending = sorted(edits, key=lambda e: (e.start, e.end))[::-1]
    at = 0  # in the text as this step received it
    for run in runs:
        if run.cut:
            pieces.append(run)
            continue
        rest = run.text
        while rest:
            edit = pending[-1] if pending else None
            if edit is None or edit.start >= at + len(rest):
                pieces.append(Run(rest, put=run.put))
                at, rest = at + len(rest), b""
                continue
            before = max(0, edit.start - at)
            if before:
                pieces.append(Run(rest[:before], put=run.put))
                at, rest = at + before, rest[before:]
            inside = min(len(rest), max(0, edit.end - at))
            if inside:
                pieces.append(Run(rest[:inside], cut=edit.name, put=run.put))
                at, rest = at + inside, rest[inside:]
            if at >= edit.end:
                pieces += _put(edit)
                pending.pop()
    for edit in reversed(pending):
        pieces += _put(edit)
    return pieces


def _put(edit: Edit) -> list[Run]:
    put = (edit.replacement or "").encode("utf-8", "replace")
    return [Run(put, put=edit.name)] if put else []


class Originals:
    """Finds texts as they were before their first edit. Small: one document, or a sample."""

    def __init__(self, out: Path, stages: Sequence[StageRecord], most_parts: int = 16) -> None:
        self.out, self.stages, self._left = out, stages, most_parts

    def find(
        self, position: tuple[str, int], name: str, text: str | None, edits: list[Edit]
    ) -> bytes | None:
        """The text before the first of the edits of the document that stands there, with its name
        and text; None where it is gone."""
        if not edits or text is None or len(text) > MOST_BYTES:
            return None
        first = edits[0].step
        stage = next((i for i, s in enumerate(self.stages) if first in s.steps), None)
        part = Path(position[0]).name[5:10]
        if stage is None or not part.isdigit():
            return None
        try:
            if stage > 0:
                return self._kept(stage - 1, int(part), name)
            return self._read(int(part), self._number(int(part), name), first)
        except (OSError, ValueError, KeyError, LlmcurateError):
            return None

    def _folder(self, stage: int) -> Path:
        return stage_folder(self.out, self.stages[stage].folder)

    def _kept(self, stage: int, part: int, name: str) -> bytes | None:
        path = part_path(self._folder(stage), part, "kept")
        table = pq.read_table(path, columns=["text"], filters=[("id", "=", name)])
        text = table["text"][0].as_py() if table.num_rows == 1 else None
        return None if text is None else text.encode()

    def _number(self, part: int, name: str) -> int:
        folder = self._folder(0)
        kept = pq.read_table(part_path(folder, part, "kept"), columns=["id"])["id"].to_pylist()
        if name in kept:
            keys = pq.read_table(part_path(folder, part, "keys"), columns=["_n"])["_n"]
            return int(keys[kept.index(name)].as_py())
        gone = pq.read_table(part_path(folder, part, "rejected"), columns=["id", "_n"])
        return int(gone["_n"][gone["id"].to_pylist().index(name)].as_py())

    def _read(self, part: int, number: int, first: str) -> bytes | None:
        from curate.documents.documents import NUMBER
        from curate.formats.reading import PartitionReader
        from curate.run.messages import Specification
        from curate.steps.contracts import Step
        from curate.steps.registry import step_class

        if self._left <= 0:
            return None
        self._left -= 1
        folder = self._folder(0)
        spec = Specification.in_folder(folder)
        steps = []
        for record in spec.steps:
            if record.label == first:
                break
            cls = fitting(step_class(record.step), record.settings)
            if issubclass(cls, Step) and not cls.only_measures:
                steps.append(cls(**record.settings).named(record.label))
        for batch in PartitionReader(spec.inputs(folder), part, spec.read):
            numbers = batch.docs.table[NUMBER].to_pylist()
            if number in numbers:
                docs = type(batch.docs)(batch.docs.table.slice(numbers.index(number), 1))
                for step in steps:
                    step.open()
                    docs = step.apply(docs.within(step.label))
                text = docs.text[0].as_py()
                return None if text is None else text.encode()
        return None
