"""A finished run as `verify` reads it: its steps, and samples of documents, texts and sketches.

Samples are drawn by a hash of the seed and the id, so a run gives the same sample on every machine.
Documents are drawn from a few partitions, because their pages are read again from the input: time
and memory depend on the sample, not on the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from curate.corpus import indexes
from curate.corpus.decisions import Decision
from curate.corpus.manifests import changed_ids, read_kept, with_ids
from curate.corpus.sketches import SketchFile
from curate.documents.attributes import unpack
from curate.documents.documents import NUMBER
from curate.documents.edits import edited, edits_of
from curate.extract.extraction import Extract
from curate.formats.compression import path_of
from curate.formats.inputs import InputPlan
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader
from curate.lab.verify.tally import NotChecked, NotInRun
from curate.run.homes import corpus_of
from curate.run.ledger import RUN
from curate.run.messages import Specification
from curate.run.records import read_record
from curate.steps.contracts import Settings
from llmcurate.base.disk.files import path_inside
from llmcurate.base.errors import LlmcurateError, UsageError

PARTS = 8  # partitions that documents are drawn from
ROWS = 1_000
S = TypeVar("S", bound=Settings)


def draw(seed: int, name: object) -> int:
    """Return a hash of an item's name; the items with the smallest hashes are the sample."""
    return xxhash.xxh3_64_intdigest(f"verify\0{name}".encode("utf-8", "replace"), seed)


def first(seed: int, names: Iterable[Any], count: int) -> list[Any]:
    """Return a sample of at most `count` items: those with the smallest hashes (see `draw`)."""
    return sorted(names, key=lambda name: (draw(seed, name), str(name)))[:count]


@dataclass(frozen=True)
class Source:
    """A document as the run's reader returns it."""

    own: str | None  # its id in the input
    url: str | None
    payload: bytes | None
    mime: str | None
    charset: str | None
    ready: str | None  # text before the step `extract`
    text: str | None  # text after the step `extract`
    refused: str | None  # reason if the reader refused it


@dataclass(frozen=True)
class Document:
    """A document in the sample."""

    id: str
    part: int
    kept: bool
    row: dict[str, Any]  # in OUT, with all columns

    @property
    def text(self) -> bytes:
        return (self.row["text"] or "").encode()

    def edited(self, text: bytes, steps: set[str] | None = None) -> bytes:
        """Return a text after the edits that the run recorded for the document. Edits stop at the
        first step that is not in `steps`; None applies all edits."""
        for step, of_step in groupby(edits_of(self.row), key=lambda edit: edit.step):
            if steps is not None and step not in steps:
                break
            text = edited(text, of_step)
        return text


class FinishedRun:
    """A finished run, with samples of about `documents` documents drawn by `seed`. Raises
    UsageError if `out` holds no finished run."""

    def __init__(self, out: Path, documents: int, seed: int) -> None:
        self.out, self.documents, self.seed = out, documents, seed
        corpus = corpus_of(out)
        if corpus.is_home:
            raise UsageError(
                f"{out} holds several runs (refresh): give the OUT of one `llmcurate run`"
            )
        self.home = out if (out / "run.json").is_file() else out / RUN
        try:
            self.record = read_record(self.home)
            from curate.steps.recipe import load

            recipe = load(str(self.home / "recipe.yaml"))
        except FileNotFoundError:
            raise UsageError(f"{out} holds no finished run: give the OUT of one") from None
        self.steps, self.read = recipe.steps, recipe.read
        corpus.need_whole()
        self.kept = {_number(path): path for path in corpus.kept}
        self.gone = {_number(path): path for path in corpus.gone}
        self.order = [step.label for step in self.steps]

    def of(self, kind: type[S]) -> list[S]:
        return [step for step in self.steps if isinstance(step, kind)]

    def need(self, kind: type[S]) -> list[S]:
        """Return the recipe's steps of the class `kind`. Raises NotInRun if the recipe has no such
        step."""
        if steps := self.of(kind):
            return steps
        raise NotInRun(f"the run has no step `{kind.name}`")

    def before(self, label: str) -> set[str]:
        return set(self.order[: self.order.index(label)])

    @cached_property
    def parts(self) -> list[int]:
        return sorted(first(self.seed, sorted({*self.kept, *self.gone}), PARTS))

    @cached_property
    def sample(self) -> list[Document]:
        """The sampled documents, kept and rejected, in the order of their partitions."""
        places = [
            (name, part, kept)
            for part in self.parts
            for kept, files in ((True, self.kept), (False, self.gone))
            if part in files
            for name in pq.read_table(files[part], columns=["id"])["id"].to_pylist()
        ]
        places.sort(key=lambda place: (draw(self.seed, place[0]), place[0]))
        chosen = sorted(places[: self.documents], key=lambda place: place[1:])
        sampled = []
        for (part, kept), group in groupby(chosen, key=lambda place: place[1:]):
            names = [name for name, _, _ in group]
            path = (self.kept if kept else self.gone)[part]
            rows = unpack(pq.read_table(path, filters=[("id", "in", names)])).to_pylist()
            sampled += [Document(row["id"], part, kept, row) for row in rows]
        return sampled

    def drawn_decisions(self, method: str, count: int) -> list[Decision]:
        """Return a sample of a dedup method's decisions that name a similar document (partner)."""
        path = self.out / "decisions.parquet"
        if not path.exists():
            return []
        rows: list[Decision] = []
        groups = 0
        with pq.ParquetFile(path) as file:
            for group in first(self.seed, range(file.num_row_groups), file.num_row_groups):
                table = file.read_row_group(group)
                chosen = table.filter(
                    pc.and_(pc.equal(table["method"], method), table["partner_id"].is_valid())
                )
                names = set(first(self.seed, set(chosen["id"].to_pylist()), count))
                rows += [row for row in Decision.rows(chosen) if row.id in names]
                groups += bool(names)
                if groups == PARTS:
                    break
        names = set(first(self.seed, {row.id for row in rows}, count))
        return [row for row in rows if row.id in names]

    def decisions_on(self, method: str, names: Iterable[str]) -> list[Decision]:
        path = self.out / "decisions.parquet"
        sorted_ids = sorted(names)
        if not path.exists() or not sorted_ids:
            return []
        filters = [("method", "=", method), ("id", "in", sorted_ids)]
        return Decision.rows(pq.read_table(path, filters=filters))

    @cached_property
    def plan(self) -> tuple[InputPlan, ReadSettings]:
        """The input files and read settings. Raises NotChecked if the first stage was deleted."""
        folder = self.stage(0)
        try:
            spec = Specification.in_folder(folder)
        except FileNotFoundError:
            missing = "the first stage in OUT/stages is missing: run the recipe again"
            raise NotChecked(missing) from None
        return spec.inputs(folder), spec.read

    def stage(self, number: int) -> Path:
        try:
            name = self.record["stages"][number]["folder"]
            return path_inside(self.out / "stages", name, self.home / "run.json")
        except IndexError:
            raise NotInRun("the run processed no documents") from None

    def unchanged(self, part: int) -> None:
        """Raise NotChecked if an input file of the partition is missing, remote or changed."""
        plan, _ = self.plan
        for number in {piece.file for piece in plan.partitions[part]}:
            file = plan.files[number]
            if "://" in file.path or not Path(path_of(file.path)).is_file():
                raise NotChecked(f"the input {file.path} is not on this machine")
            if file.state not in ("", file.now()[0]):
                raise NotChecked(f"the input {file.path} has changed since the run")

    @cached_property
    def sources(self) -> dict[str, Source]:
        """The sampled documents by id, as the reader returns them. Raises NotChecked if an input
        file is missing, remote or changed."""
        sources: dict[str, Source] = {}
        for part in self.parts:
            ids = {doc.id for doc in self.sample if doc.part == part}
            if ids:
                self.unchanged(part)
                sources.update(self._read(part, ids))
        return sources

    def _read(self, part: int, asked_ids: set[str]) -> Iterator[tuple[str, Source]]:
        plan, settings = self.plan
        settled = self.stage(0) / "ids.parquet"
        changed = changed_ids(str(settled) if settled.exists() else None, part)
        steps = self.of(Extract)[:1]
        for batch in PartitionReader(plan, part, settings):
            own_ids = dict(zip(*(batch.ids[c].to_pylist() for c in (NUMBER, "own")), strict=True))
            for docs, refused in ((batch.docs, False), (batch.refused, True)):
                if docs is None:
                    continue
                numbers = docs.table[NUMBER].to_pylist()
                ids = docs.table["id"].to_pylist()
                final = [changed.get(n, name) for n, name in zip(numbers, ids, strict=True)]
                rows = [k for k, name in enumerate(final) if name in asked_ids]
                if not rows:
                    continue
                table = docs.table.take(pa.array(rows))
                texts = table["text"].to_pylist()
                if steps and not refused:
                    extracted = steps[0].apply(type(docs)(table).within(steps[0].label))
                    texts = extracted.text.to_pylist()
                for row, text, k in zip(table.to_pylist(), texts, rows, strict=True):
                    yield (
                        final[k],
                        Source(
                            own_ids[row[NUMBER]], row["url"], row.get("payload"), row.get("mime"),
                            row.get("charset"), row["text"], None if refused else text,
                            docs.drops[0].rule if refused else None,
                        ),
                    )  # fmt: skip

    def unextracted(self, document: Document) -> bool:
        """Return True if a document has no text because `extract` or an earlier step dropped it."""
        extract = next((step.label for step in self.of(Extract)), None)
        if document.kept or extract is None or document.row["text"] is not None:
            return False
        return document.row["step"] in {"read", extract, *self.before(extract)}

    def text_before(self, document: Document, label: str) -> str | None:
        """Return the text that a step received, or None if the reader refused the document. Raises
        ValueError if the recorded edits do not turn the input into the stored text."""
        source = self.sources.get(document.id)
        if source is None:
            raise ValueError("the document is not in the input")
        if source.text is None:
            return None
        text = source.text.encode("utf-8", "replace")
        if not self.unextracted(document) and document.edited(text) != document.text:
            raise ValueError("the recorded edits do not turn the input into the stored text")
        return document.edited(text, self.before(label)).decode()

    def stage_texts(self, label: str, part: int, numbers: set[int]) -> dict[int, str]:
        """Return {row number: text} of documents in a partition, as the corpus step `label`
        received them."""
        stages = enumerate(self.record["stages"])
        number = next((n for n, stage in stages if label in stage["steps"]), None)
        if number is None:
            raise NotChecked(f"run.json names no stage of {label}")
        folder = self.stage(number - 1)
        texts: dict[int, str] = {}
        try:
            for table in read_kept(folder, part, ROWS):
                rows = [k for k, n in enumerate(table[NUMBER].to_pylist()) if n in numbers]
                values = table["text"].take(pa.array(rows, pa.int64())).to_pylist()
                own_numbers = table[NUMBER].take(pa.array(rows, pa.int64())).to_pylist()
                texts.update(zip(own_numbers, (value or "" for value in values), strict=True))
        except FileNotFoundError:
            raise NotChecked(f"the stage before {label} is missing: run the recipe again") from None
        return texts


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def model_at(path: Any) -> Path:
    """Return the path of a step's model file. Raises NotChecked if the file is missing."""
    try:
        file = Path(path())
    except LlmcurateError as error:
        raise NotChecked(str(error)) from None
    if not file.is_file():
        raise NotChecked(f"the model {file} is missing: restore it and verify again")
    return file


Row = dict[str, Any]


def index_of(run: FinishedRun, step: Any) -> indexes.Index:
    """Return the index that a dedup step wrote. Raises NotChecked if OUT/index has none."""
    for index in indexes.all_in(run.out):
        if index.record.label == step.label:
            return index
    raise NotChecked(f"OUT/index holds no sketches of {step.label}")


def own_files(index: indexes.Index) -> list[SketchFile]:
    """Return the sketch files of the run itself, without those of earlier corpora."""
    return [replace(file, corpus="") for file in index.files(0)]


def rows_of(
    files: list[SketchFile], asked_ids: set[str], columns: list[str]
) -> Iterator[tuple[SketchFile, Row]]:
    """Yield (file, {column: value}) of each document in `asked_ids`. The columns are `columns`, id
    and n (the document's number in its partition). Of all other documents, only id and n are
    read."""
    names = pa.array(sorted(asked_ids), pa.string())
    for file in files:
        ids = _ids(file)
        yield from _read(file, ids.filter(pc.is_in(ids["id"], value_set=names)), columns)


def drawn_rows(
    run: FinishedRun, files: list[SketchFile], columns: list[str], count: int, without: set[str]
) -> Iterator[tuple[SketchFile, Row]]:
    """Yield (file, row) for a sample of about `count` rows from at most PARTS of the files. Rows
    with an id in `without` are not sampled."""
    drawn = sorted(first(run.seed, range(len(files)), PARTS))
    for number in drawn:
        ids = _ids(files[number])
        names = [name for name in ids["id"].to_pylist() if name not in without]
        chosen = pa.array(first(run.seed, names, max(1, count // len(drawn))), pa.string())
        yield from _read(files[number], ids.filter(pc.is_in(ids["id"], value_set=chosen)), columns)


def _ids(file: SketchFile) -> pa.Table:
    table = pq.read_table(file.path, columns=["n", "id"]).rename_columns([NUMBER, "id"])
    return with_ids(table, changed_ids(str(file.ids) if file.ids else None, file.stored))


def _read(file: SketchFile, ids: pa.Table, columns: list[str]) -> Iterator[tuple[SketchFile, Row]]:
    if not ids.num_rows:
        return
    names = dict(zip(ids[NUMBER].to_pylist(), ids["id"].to_pylist(), strict=True))
    table = pq.read_table(file.path, columns=[*columns, "n"], filters=[("n", "in", [*names])])
    for row in table.to_pylist():
        yield file, row | {"id": names[row["n"]]}
