"""The text of a document as it was before the first edit, and what the edits made of it.

Edits are recorded as positions in the input of each step; the text they cut is gone from the
corpus. The original stands in the stage before, or, for the first stage, in the run's input, which
is read again up to the document. It is shown only where the edits lead from it to the stored text,
byte by byte: so a file that has changed since is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from curate.corpus.manifests import changed_ids, read_kept, with_ids
from curate.documents.documents import Documents
from curate.documents.edits import Edit
from curate.formats.reading import PartitionReader
from curate.run.messages import Specification
from curate.run.plan import stage_folder
from curate.run.records import StageRecord
from curate.steps.contracts import Step, fitting
from curate.steps.registry import step_class
from llmcurate.base.errors import LlmcurateError

ROWS = 256  # of a batch

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
        if stage is None or not part.isdigit() or (stage == 0 and self._left <= 0):
            return None
        self._left -= stage == 0
        folders = [stage_folder(self.out, s.folder) for s in self.stages]
        try:
            texts = dict(entering(folders, stage, first, [name], [int(part)]))
        except (OSError, ValueError, KeyError, LlmcurateError):
            return None
        found = texts.get(name)
        return None if found is None else found.encode()


def entering(
    folders: Sequence[Path], stage: int, label: str, names: Sequence[str], parts: Iterable[int]
) -> Iterator[tuple[str, str | None]]:
    """(id, text) of documents as they entered a step, by the stage before its own, or by the run's
    input, which is read again. folders: of the stages; parts: the partitions that are read."""
    spec = Specification.in_folder(folders[stage])
    steps = []
    chain = (*filter(None, [spec.apply]), *spec.steps)
    for record in takewhile(lambda record: record.label != label, chain):
        cls = fitting(step_class(record.step), record.settings)
        if issubclass(cls, Step) and not cls.only_measures:
            steps.append(cls(**record.settings).named(record.label))
    for part in parts:
        for table in stage_input(folders, stage, part):
            wanted = pc.is_in(table["id"], pa.array(names, pa.string()))
            docs = Documents(table.filter(wanted).combine_chunks())
            for step in steps if len(docs) else ():
                step.open()
                docs = step.apply(docs.within(step.label))
            yield from zip(docs.table["id"].to_pylist(), docs.text.to_pylist(), strict=True)


def stage_input(folders: Sequence[Path], stage: int, part: int) -> Iterator[pa.Table]:
    """What a stage read of a partition, with final ids."""
    if stage:
        tables = read_kept(folders[stage - 1], part, ROWS)
    else:
        spec = Specification.in_folder(folders[0])
        reader = PartitionReader(spec.inputs(folders[0]), part, spec.read)
        tables = (batch.docs.table for batch in reader)
    changed = changed_ids(str(folders[0] / "ids.parquet"), part) if stage < 2 else {}
    for table in tables:
        yield with_ids(table, changed)
