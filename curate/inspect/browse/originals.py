"""The text of a document before the first edit, and what the edits changed in it.

An edit is recorded as a position in the text that entered its step; the corpus does not hold the
text that was cut. The original text is read again from the run's input, or from the output of the
previous stage. It is used only if the edits turn it into exactly the stored text, so an input that
has changed since is never shown.
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

ROWS = 256  # per batch

MOST_BYTES = 4 << 20  # longer texts are shown without their cuts


@dataclass(frozen=True)
class Run:
    """A piece of text. `cut` is the rule that removed the piece and `put` the rule that inserted
    it; both are set if a later step removed what an earlier step had inserted."""

    text: bytes
    cut: str | None = None
    put: str | None = None


def replay(original: bytes, edits: Iterable[Edit], final: bytes) -> list[Run] | None:
    """Apply the edits to the original text and return the text's pieces, including those that edits
    removed or inserted. Return None if the result is not the final text. `edits` are grouped by
    step; their positions are byte offsets in the text that entered the step."""
    runs = [Run(original)]
    for _, of_step in groupby(edits, key=lambda edit: edit.step):
        runs = _apply(runs, list(of_step))
    return runs if b"".join(r.text for r in runs if not r.cut) == final else None


def _apply(runs: list[Run], edits: list[Edit]) -> list[Run]:
    pieces: list[Run] = []
    # Edits of the same position keep their order.
    pending = sorted(edits, key=lambda e: (e.start, e.end))[::-1]
    at = 0  # byte offset in the text that entered this step
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
    """A reader of texts before their first edit. If the run's first stage made this edit, a slow
    search of the run's input is needed."""

    def __init__(self, out: Path, stages: Sequence[StageRecord]) -> None:
        self.out, self.stages = out, stages

    def find(
        self, position: tuple[str, int], name: str, text: str | None, edits: list[Edit]
    ) -> bytes | None:
        """Return a document's text as it was before its first edit, as UTF-8, or None if not found.
        `position` is the document's (file, row), `name` its id, and `text` its stored text."""
        if not edits or text is None or len(text) > MOST_BYTES:
            return None
        first = edits[0].step
        stage = next((i for i, s in enumerate(self.stages) if first in s.steps), None)
        part = Path(position[0]).name[5:10]
        if stage is None or not part.isdigit():
            return None
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
    """Yield (id, text) of the documents with the ids `names`, as they entered the step `label`.
    `folders` are the folders of all stages of the run, `stage` is the number of the step's own
    stage, and `parts` are the numbers of the partitions that hold the documents."""
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
    """Yield the documents that enter a stage in one partition, with their final ids. They come from
    the run's input for stage 0, otherwise from the kept documents of the previous stage."""
    if stage:
        tables = read_kept(folders[stage - 1], part, ROWS)
    else:
        spec = Specification.in_folder(folders[0])
        reader = PartitionReader(spec.inputs(folders[0]), part, spec.read)
        tables = (batch.docs.table for batch in reader)
    changed = changed_ids(str(folders[0] / "ids.parquet"), part) if stage < 2 else {}
    for table in tables:
        yield with_ids(table, changed)
