"""Run steps again on the documents for which a run's scores do not show what new settings would do.

If a changed rule no longer drops a document, this step and all later steps are run on the text that
OUT holds of it, as it entered this step. A dedup step decides again on the run's sketches, without
those of documents that no longer reach it and with those that reach it only now. So it may drop a
document that was kept (*displaced*) or keep one that was dropped (*returned*), which then goes
through the later steps in the same way.

If all this would take longer than `SECONDS`, a seeded sample of the documents is measured, and the
answer is an estimate with a 95 % interval. Wilson's intervals (for a finite population) of the
share gained and of the share lost are combined as Newcombe (1998) combines two shares.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import chain, groupby, pairwise, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.manifests import changed_ids, part_path, with_ids
from curate.corpus.sketches import SketchedCorpus, sketch_batches
from curate.documents.attributes import DocumentsFile
from curate.documents.documents import NUMBER, Documents
from curate.documents.edits import EDIT, EDITS, edited, edits_of
from curate.documents.rejected import REASON_COLUMNS
from curate.inspect.browse.originals import entering, stage_input
from curate.inspect.whatif.question import READER, Question
from curate.inspect.whatif.scores import Decider, Verdicts
from curate.run.decisions import resolve
from curate.run.messages import Specification
from curate.run.plan import check_code, stage_folder
from curate.run.worker.stage import sketch_rows
from curate.steps.contracts import CorpusStep, Step, code_of, open_in
from curate.steps.failures import failing, on_batch
from llmcurate.base.disk.parquet_writer import one_array, writing
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.terminal import Progress

SECONDS = 10.0  # about how long measuring may take
BATCH, PILOT, FEWEST = 256, 128, 400  # documents: per batch; to find the speed; always measured
MOST_SKETCHES, MOST_TEXT = 200_000, 64 << 20  # documents, bytes that a dedup may decide on again
Z = 1.959964  # for 95 %


class Unknown(Exception):
    """Raised if the run stored too little to measure something; the message gives the reason."""


@dataclass(frozen=True)
class DedupChange:
    """The effect of new settings on a dedup step, in numbers of documents."""

    JSON = ("step", "admitted", "dropped", "gone", "displaced", "returned")
    step: str
    admitted: int  # reach the dedup only now
    dropped: int  # of those admitted, dropped by the dedup
    gone: int  # no longer reach the dedup
    displaced: int  # were kept and are now dropped
    returned: int  # were dropped and are now kept


@dataclass
class Measured:
    """The documents that were run again: all whose result was unknown, or samples of these.

    The arrays have one entry per document of the original run. The documents that are run again
    from the same step on form a stratum. Each stratum is sampled separately.
    """

    weights: np.ndarray  # float64[rows]: number of documents for which a document stands
    stratum: np.ndarray  # int[rows]: index into `strata`, -1 if not sampled
    before: np.ndarray  # bool[rows]: kept according to the stored scores
    strata: list[tuple[int, int]] = field(default_factory=list)  # (documents, drawn)
    documents: int = 0  # number of documents that were run again
    of: int = 0  # number of documents whose result was unknown
    shift: float = 0.0  # added to the estimate
    more: float = 0.0  # added to the upper end of the interval
    fewer: float = 0.0  # subtracted from the lower end of the interval
    dedup_changes: list[DedupChange] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return self.documents == self.of and not self.more and not self.fewer

    def interval(self, kept: np.ndarray, size: np.ndarray) -> tuple[list[float], list[float]]:
        """Return (number of documents kept, their bytes), each as [estimate, low, high]. `kept` is
        bool[rows], and `size` is the bytes of each text."""
        change = (self.weights - 1) * (kept.astype(np.int8) - self.before)
        documents = kept.sum() + change.sum() + self.shift
        low = high = 0.0
        for number, (of, drawn) in enumerate(self.strata):
            rows = self.stratum == number
            gained = int((rows & kept & ~self.before).sum())
            lost = int((rows & ~kept & self.before).sum())
            (g, g_low, g_high), (x, x_low, x_high) = (
                [of * share for share in wilson(events, drawn, of)] for events in (gained, lost)
            )
            low += (g - g_low) ** 2 + (x_high - x) ** 2
            high += (g_high - g) ** 2 + (x - x_low) ** 2
        ends = documents - math.sqrt(low) - self.fewer, documents + math.sqrt(high) + self.more
        total = float(size[kept].sum() + (change * size).sum())
        counted_in = documents - self.shift
        each = total / counted_in if counted_in else float(size.mean()) if len(size) else 0.0
        spread = [documents, max(0.0, ends[0]), ends[1]]
        return spread, [max(0.0, total + each * (end - documents)) for end in spread]


def wilson(events: int, drawn: int, of: int) -> tuple[float, float, float]:
    """Return (share, low, high) with Wilson's 95 % interval. The share is `events` / `drawn`, in a
    sample of `drawn` documents from a population of `of`."""
    share = min(1.0, events / drawn)
    z = Z * math.sqrt((of - drawn) / (of - 1)) if of > drawn else 0.0
    middle = (share + z * z / (2 * drawn)) / (1 + z * z / drawn)
    half = math.sqrt(share * (1 - share) / drawn + (z / (2 * drawn)) ** 2) * z / (1 + z * z / drawn)
    return share, max(0.0, middle - half), min(1.0, middle + half)


def measure(
    question: Question, decider: Decider, now: Verdicts, most: int = 0, quiet: bool = False
) -> Measured:
    """Run steps again on documents whose verdicts in `now` are incomplete, and enter the results in
    `now`. From each step on, at most `most` more documents are run; 0: as many as `SECONDS`
    allow."""
    walk = _Walk(question, decider, now, most, quiet)
    walk.go()
    return walk.found


class _Walk:
    """A pass through the steps from the first changed one, on documents whose outcome may change.

    `place` is int[rows]: the number of the step that now drops the document, as far as is known, or
    the number of steps if it is kept. `docs` is a table of the documents now being run.
    """

    def __init__(
        self, question: Question, decider: Decider, now: Verdicts, most: int, quiet: bool
    ) -> None:
        self.question, self.decider, self.now = question, decider, now
        self.scores, self.steps = now.scores, question.now.document_steps
        self.end, rows = len(self.steps), len(now.scores)
        self.left: int | None = most or None  # documents that may still be measured
        self.fewest, self.quiet = most or FEWEST, quiet
        self.places = {label: at for at, label in enumerate(question.steps)}
        self.place = np.full(rows, self.end, np.int64)
        for name, mask in now.fails.items():
            self.place[mask] = np.minimum(self.place[mask], self._at(name))
        self.waiting = (
            now.number == 0
        ) & ~now.whole  # to be measured from the step that dropped it
        self.place[self.waiting] = decider.first[self.waiting]
        self.found = Measured(np.ones(rows), np.full(rows, -1), now.kept)
        self.docs: pa.Table | None = None
        self.assumed = np.zeros(rows, np.bool_)  # kept if an undecided dedup keeps it
        self.open = np.zeros(rows, np.bool_)  # documents that cannot be decided here
        self.doubtful = np.zeros(rows, np.bool_)  # measured on a text that later steps had cut
        self.stored = _Stored(question, now)

    def _at(self, rule: str) -> int:
        return self.places.get(rule.partition(".")[0], READER)

    def go(self) -> None:
        question, found = self.question, self.found
        undecidable = {at: setting for setting, (at, _) in question.undecidable.items()}
        begin = min([r.at for r in question.rules if r.was != r.now] + [*undecidable, self.end])
        with (
            tempfile.TemporaryDirectory(prefix="llmcurate-") as name,
            Progress("measuring documents", self.end, self.quiet) as self.progress,
        ):
            self.folder = Path(name)
            for at in range(begin, self.end):
                step = self.steps[at]
                rows = self.waiting & (self.decider.first == at)
                if isinstance(step, CorpusStep):
                    self._run_dedup(at, step, undecidable.get(at))
                    continue
                if rows.any():
                    drawn, table = self._draw(at, np.flatnonzero(rows))
                    self._forget_verdicts(drawn, at)
                    self._add_documents(table)
                try:
                    if at in undecidable:
                        self._run_changed(at, step)
                    elif self.docs is not None:
                        self.docs = self._run_step(at, self._opened(step), self.docs)
                except (Unknown, LlmcurateError) as problem:
                    self._leave_open(at, str(problem), undecidable.get(at))
        if self.docs is not None:  # now with their final texts
            rows = self.docs[NUMBER].to_numpy()
            self.scores.bytes[rows] = pc.binary_length(self.docs["text"]).to_numpy()
        self.now.number[:] = 0
        for mask in self.now.fails.values():
            self.now.number += mask
        kept, weights = self.now.kept, found.weights
        gained = self.doubtful & kept & ~found.before
        lost = self.doubtful & ~kept & found.before
        found.more += float(np.count_nonzero(self.open & ~kept) + weights[lost].sum())
        found.fewer += float(weights[(self.assumed & kept) | gained].sum())
        doubt = gained | lost | (self.assumed & self.open)
        if doubt.any():
            found.notes.append(
                f"{counted(int(doubt.sum()), 'document')} had been cut after the changed step"
                " read the text. The cut text was measured, and the interval counts these documents"
                " as kept and as dropped"
            )

    # Documents that join the walk.

    def _draw(self, at: int, rows: np.ndarray) -> tuple[np.ndarray, pa.Table]:
        found = self.found
        order = np.random.default_rng(len(rows)).permutation(len(rows))
        many = len(rows)
        if many > self.fewest:
            if self.left is None:
                self.left = self._affordable(at, rows[order[:PILOT]])
            many = min(many, max(self.left, self.fewest))
            self.left = max(0, self.left - many)
        drawn = np.sort(rows[order[:many]])
        table = self.stored.read(drawn, at)
        if many < len(rows):
            found.weights[drawn] = len(rows) / many
            found.stratum[drawn] = len(found.strata)
            found.strata.append((len(rows), many))
        empty = table["text"].is_null().to_numpy()
        if empty.any():  # dropped before extraction
            self.open[drawn[empty]] = True
            found.notes.append(
                f"{counted(int(empty.sum()), 'document')} that {self.question.steps[at]} now lets"
                " pass had been dropped before text extraction. How many later steps keep is not"
                " known without a run (--apply)"
            )
            drawn, table = drawn[~empty], table.filter(pa.array(~empty))
        found.documents, found.of = found.documents + len(drawn), found.of + len(rows)
        return drawn, table

    def _affordable(self, at: int, rows: np.ndarray) -> int:
        pace = 0.0
        for some in (rows[:8], rows):
            docs = Documents(self.stored.read(np.sort(some), self.end))
            began = time.perf_counter()
            for step in self.steps[at:]:
                with suppress(LlmcurateError, Unknown):
                    if isinstance(step, CorpusStep):
                        step.open()
                        _sketched(step, docs.table)
                    else:
                        docs = on_batch(step.label, self._opened(step), docs.within(step.label))
            pace = (time.perf_counter() - began) / len(some)
        return int(SECONDS / pace)

    def _add_documents(self, table: pa.Table) -> None:
        tables = [table] if self.docs is None else [self.docs, table]
        self.docs = _joined(tables).sort_by(NUMBER).combine_chunks()

    def _forget_verdicts(self, rows: np.ndarray, at: int) -> None:
        for name, mask in self.now.fails.items():
            if self._at(name) >= at:
                mask[rows] = False
        self.waiting[rows] = False
        self.now.whole[rows] = True
        self.decider.until[rows] = self.decider.seen[rows] = self.end - 1

    # Steps.

    def _opened(self, step: Step) -> Callable[[Documents], Documents]:
        if code_of(step):
            check_code(self.question.now, allowed=False)
        with failing(step.label):
            open_in(step, self.folder)
        return step.apply

    def _applied(
        self, at: int, apply: Callable[[Documents], Documents], table: pa.Table
    ) -> Iterator[Documents]:
        label = self.steps[at].label
        for start in range(0, len(table), BATCH):
            docs = Documents(table.slice(start, BATCH).combine_chunks()).within(label)
            yield on_batch(label, apply, docs)
            self._show_progress(at, start + len(docs), len(table))

    def _run_step(
        self, at: int, apply: Callable[[Documents], Documents], table: pa.Table
    ) -> pa.Table:
        tables = [self._record_verdicts(at, docs) for docs in self._applied(at, apply, table)]
        return _joined(tables) if tables else table

    def _show_progress(self, at: int, done: int, of: int) -> None:
        self.progress.update(at, f"{self.steps[at].label}: {done:,} of {of:,}")

    def _record_verdicts(self, at: int, docs: Documents) -> pa.Table:
        rows = docs.table[NUMBER].to_numpy()
        for drop in docs.drops:
            mask = self.now.fails.setdefault(drop.name, np.zeros(len(self.place), np.bool_))
            mask[rows[drop.rows]] = True
        self.place[rows] = np.where(docs.marked(), at, self.end)
        for name, values in self.scores.columns.items():
            if name.startswith(docs.step + ".") and name in docs.table.column_names:
                numbers = pc.fill_null(pc.cast(docs.table[name], pa.float64()), np.nan)
                values[rows] = numbers.to_numpy()
        return docs.split()[0]

    def _run_changed(self, at: int, step: Step) -> None:
        """Run a step whose settings changed, because stored scores do not show the effect. The step
        gets all documents that reach it, or a sample of these. If the step's verdict on a document
        is that of the original run and the step does not edit the text, the stored verdicts of
        later steps on the document are kept."""
        if step.name == "extract":
            raise Unknown("a run does not store pages")
        if self.docs is not None:
            self.docs = self._run_step(at, self._opened(step), self.docs)
        reaches = (self.place >= at) & ~_mask(self.docs, len(self.place)) & ~self.open
        drawn, table = self._draw(at, np.flatnonzero(reaches & ~self.waiting))
        changed = [np.zeros(0, np.bool_)]
        for docs in self._applied(at, self._opened(step), table):
            passed = self.place[docs.table[NUMBER].to_numpy()] > at
            same = pc.equal(docs.text, docs.entry).to_numpy(zero_copy_only=False)
            changed.append((passed == docs.marked()) | (passed & ~same))
        other = np.concatenate(changed)
        self._forget_verdicts(drawn[other], at)
        self._add_documents(self._run_step(at, step.apply, table.filter(pa.array(other))))
        self._check_cut_texts(
            at, step, table.filter(pa.array(other)) if step.only_measures else table
        )

    def _check_cut_texts(self, at: int, step: Step, table: pa.Table) -> None:
        """Mark documents that this step got with the final, cut text of the original run, because
        the text before the cuts was not restored. If the step edits texts, all are `open`
        (undecided). If the step only measures, a document is `doubtful` if the step's old settings
        give another verdict on the final text than they gave in the original run."""
        table = table.filter(pc.is_in(table[NUMBER], pa.array(self.stored.cut)))
        rows = table[NUMBER].to_numpy()
        if not step.only_measures:
            self.assumed[rows] = self.open[rows] = True
        elif len(rows):
            earlier: Any = self.question.was.document_steps[at]
            marks = [docs.marked() for docs in self._applied(at, self._opened(earlier), table)]
            rows = rows[(self.decider.first[rows] > at) == np.concatenate(marks)]
            self.doubtful[rows] = True

    def _leave_open(self, at: int, why: str, setting: str | None) -> None:
        under_way, reaches = _mask(self.docs, len(self.place)), np.zeros_like(self.open)
        if setting:
            reaches = (self.place >= at) & ~self.open & ~under_way
            self.assumed |= reaches & self.now.kept
        self.open |= under_way | (reaches & ~self.now.kept)
        self.now.whole[under_way] = False
        self.docs = None
        self._note_undecided(at, setting, under_way | reaches, why)

    def _note_undecided(self, at: int, setting: str | None, mask: np.ndarray, why: str) -> None:
        if mask.any():
            self.found.notes.append(
                f"{setting or self.steps[at].label}: what {self.steps[at].label} decides on"
                f" {counted(int(mask.sum()), 'document')} is not known without a run (--apply),"
                f" as {why}. The interval counts these documents as kept and as dropped"
            )

    # Dedups.

    def _run_dedup(self, at: int, step: CorpusStep, setting: str | None) -> None:
        active, was = _mask(self.docs, len(self.place)), self.decider.first >= at
        stays = was & (self.place >= at) & ~active
        gone = was & ~stays
        if not (active.any() or setting or (gone.any() and step.shared_key_column != "")):
            return
        try:
            old, new = self._decisions(at, step, stays, gone, setting)
        except (Unknown, LlmcurateError) as problem:
            dropped = int((stays & (self.place == at)).sum())  # the estimate counts them as dropped
            self.found.more += dropped if setting else min(dropped, int(gone.sum()))
            self.assumed |= active | (stays if setting else False)
            self._note_undecided(at, setting, active | (stays if setting else gone), str(problem))
            return
        before, after = _drops(old), _drops(new)
        other = sorted(r for r in {*before, *after} if stays[r] and before[r] != after[r])
        changed = np.array(other, np.int64)
        kept = self.place[changed] > at
        if len(changed):
            table = self.stored.read(changed, at)
            cut = np.isin(changed, self.stored.cut)  # passages cannot be located in a cut text
            self.assumed[changed[cut]] = self.open[changed[cut]] = True
            changed, kept, table = changed[~cut], kept[~cut], table.filter(pa.array(~cut))
            self._forget_verdicts(changed, at)
            self._add_documents(table)
        if self.docs is not None:

            def apply(docs: Documents) -> Documents:
                numbers = docs.table[NUMBER].combine_chunks()
                return step.apply(docs, new.filter(pc.is_in(new["n"], numbers)))

            self.docs = self._run_step(at, apply, self.docs)
        stay = self.place[changed] > at
        if active.any():  # displaced documents get the weight of a new one
            heaviest = int(np.argmax(np.where(active, self.found.weights, 0)))
            for values in (self.found.weights, self.found.stratum):
                values[changed[kept & ~stay]] = values[heaviest]
            self._correct_pairs(new, active & ~was, float(self.found.weights[heaviest]))
        new_here = active & ~was
        counts = [new_here, new_here & (self.place == at), gone & ~active, kept & ~stay]
        sums = [int(mask.sum()) for mask in (*counts, ~kept & stay)]
        self.found.dedup_changes.append(DedupChange(step.label, *sums))

    def _correct_pairs(self, decisions: pa.Table, fresh: np.ndarray, weight: float) -> None:
        """Correct the estimate for duplicates among the new documents. A sample with the share s of
        the documents holds only the share s² of their pairs. The correction's interval is that of a
        score test, for a number of pairs with a Poisson distribution."""
        rows, cluster = decisions["n"].to_numpy(), decisions["cluster"].fill_null(-1).to_numpy()
        if weight == 1 or not len(rows):
            return
        sizes = np.bincount(cluster + 1)[cluster + 1]
        both = (sizes == 2) & fresh[rows] & (cluster >= 0)
        pairs = int((np.bincount(cluster[both]) == 2).sum()) if both.any() else 0
        more = weight * (weight - 1)
        spread = Z * math.sqrt(pairs + Z * Z / 4)
        self.found.shift -= more * pairs
        self.found.fewer += min(weight * float(fresh.sum()), more * (Z * Z / 2 + spread))
        self.found.more += more * (spread - Z * Z / 2)

    def _decisions(
        self, at: int, step: CorpusStep, stays: np.ndarray, gone: np.ndarray, setting: str | None
    ) -> tuple[pa.Table, pa.Table]:
        stored, sketch, earlier = self.stored, None, self.question.was.document_steps[at]
        whole = setting is not None or step.shared_key_column is None
        assert isinstance(earlier, CorpusStep)
        anew = whole and earlier.sketch_identity().values != step.sketch_identity().values
        large = self.scores.bytes[stays].sum() > MOST_TEXT and (
            anew or step.shared_key_column is None
        )
        if whole and (large or np.count_nonzero(stays) > MOST_SKETCHES):
            raise Unknown("there are too many documents to decide on here")
        old = stored.decisions(at)
        if self.docs is not None and len(self.docs):
            step.open()
            sketch = _sketched(step, self.docs)
        elif not whole and not gone[old["n"].to_numpy()].any():
            return old.slice(0, 0), old.slice(0, 0)  # no cluster has lost a document
        sketches = stored.sketched_again(at, step) if anew else stored.sketches(at)
        rows = sketches["n"].to_numpy()
        concerned = stays.copy()
        if step.shared_key_column is not None and not whole:
            concerned &= _affected(step.shared_key_column, sketches, sketch, old, gone)
        sketches = sketches.filter(pa.array(concerned[rows]))
        tables = [sketches] if sketch is None else [sketches, sketch.select(sketches.column_names)]
        reaching = _joined(tables)
        order = np.argsort(stored.arrival[reaching["n"].to_numpy()])
        self._show_progress(at, len(reaching), len(reaching))
        new = _resolved(step, reaching.take(pa.array(order)), self.folder / f"resolve-{at}")
        return old.filter(pa.array(concerned[old["n"].to_numpy()])), new


def _mask(docs: pa.Table | None, rows: int) -> np.ndarray:
    mask = np.zeros(rows, np.bool_)
    if docs is not None:
        mask[docs[NUMBER].to_numpy()] = True
    return mask


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def _drops(decisions: pa.Table) -> defaultdict[int, list[tuple[Any, Any]]]:
    """Return {row: [(start, end) of each dropped passage]}; (None, None) is the whole document."""
    drops: defaultdict[int, list[tuple[Any, Any]]] = defaultdict(list)
    table = decisions.filter(decisions["drop"])
    columns = (table[name].to_pylist() for name in ("n", "span_start", "span_end"))
    for row, start, end in zip(*columns, strict=True):
        drops[row].append((start, end))
    return drops


def _sketched(step: CorpusStep, docs: pa.Table) -> pa.Table:
    rows = range(0, len(docs), BATCH)
    return pa.concat_tables([sketch_rows(step, docs.slice(r, BATCH), 0) for r in rows])


def _affected(
    column: str, sketches: pa.Table, new: pa.Table | None, old: pa.Table, gone: np.ndarray
) -> np.ndarray:
    """Return bool[rows]: True for documents that the dedup must decide on again.

    These are the documents of clusters that lose a member, and of clusters in which a document has
    the same value of `column` as a new document.
    """
    affected = gone.copy()
    if new is not None and column:
        new_keys, old_keys = (_words(table[column]) for table in (new, sketches))
        shares_value = np.zeros(len(sketches), np.bool_)
        for n in range(new_keys.shape[1]):
            shares_value |= np.isin(old_keys[:, n], new_keys[:, n])
        affected[sketches["n"].to_numpy()[shares_value]] = True
    rows, cluster = old["n"].to_numpy(), old["cluster"].fill_null(-1).to_numpy()
    mates: np.ndarray = np.isin(cluster, cluster[affected[rows] & (cluster >= 0)])
    affected[rows[mates]] = True
    return affected


def _words(values: pa.ChunkedArray) -> np.ndarray:
    keys = one_array(values)
    width = keys.type.byte_width // 8
    words = np.frombuffer(keys.buffers()[1], np.uint64).reshape(-1, width)
    words = words[keys.offset : keys.offset + len(keys)]
    return np.where(keys.is_valid().to_numpy(zero_copy_only=False)[:, None], words, 0)


def _resolved(step: CorpusStep, sketches: pa.Table, folder: Path) -> pa.Table:
    rows = sketches["n"].to_numpy()
    at = sketches.column_names.index("n")
    numbers = pa.array(np.arange(len(rows)))  # the order of arrival
    folder.mkdir()
    corpus = SketchedCorpus(folder, 1, "sketch", False)
    with writing(part_path(folder, 0, corpus.kind)) as writer:
        writer.write(sketches.set_column(at, "n", numbers).combine_chunks())
    path = folder / "decisions.parquet"
    resolve(step, corpus, folder / "own", path, (len(rows), 0), 1)
    table = pq.read_table(path)
    rows = rows[table["n"].to_numpy()]
    order = np.lexsort((table["span_start"].fill_null(-1).to_numpy(), rows))  # expected by `apply`
    at = table.column_names.index("n")
    return table.set_column(at, "n", pa.array(rows, pa.int64())).take(pa.array(order))


class _Stored:
    """A run's documents (numbered as in the arrays of `Scores`), sketches and decisions."""

    def __init__(self, question: Question, now: Verdicts) -> None:
        self.question, self.scores = question, now.scores
        self.paths = [*question.corpus.kept, *question.corpus.gone]
        counts = [pq.read_metadata(path).num_rows for path in self.paths]
        self.starts = np.concatenate(([0], np.cumsum(counts)))
        self.cut = np.zeros(0, np.int64)  # rows of the last `read` that later steps had edited

    @cached_property
    def ids(self) -> pa.Array:
        files = (pq.read_table(path, columns=["id"])["id"] for path in self.paths)
        chunks = [chunk for file in files for chunk in file.chunks]
        return pa.chunked_array(chunks, pa.string()).take(pa.array(self.scores.at))

    @cached_property
    def arrival(self) -> np.ndarray:
        """int64[rows]: sort key that puts documents in the order of the input."""
        folders = self.folders
        places = np.zeros(len(self.ids), np.int64)
        for part in self.parts:
            changed = changed_ids(str(folders[0] / "ids.parquet"), part)
            kept, numbers = (pq.read_table(part_path(folders[-1], part, kind), columns=[name])
                             for kind, name in (("kept", "id"), ("keys", NUMBER)))  # fmt: skip
            gone = [pq.read_table(part_path(folder, part, "rejected"), columns=["id", NUMBER])
                    for folder in folders]  # fmt: skip
            for table in (kept.append_column(NUMBER, numbers[NUMBER]), *gone):
                rows = self._rows(with_ids(table, changed)["id"])
                places[rows[rows >= 0]] = (part << 40) + table[NUMBER].to_numpy()[rows >= 0]
        return places

    def _rows(self, ids: Any) -> np.ndarray:
        return pc.fill_null(pc.index_in(ids, value_set=self.ids), -1).to_numpy().astype(np.int64)

    def read(self, rows: np.ndarray, at: int) -> pa.Table:
        """Return the documents `rows` as they enter step number `at`, with a column of row numbers.
        If this or a later step edited a text, the text before the edit is restored from the stage's
        input. If the restoring fails, or if step `at` only measures, the table has the final text
        instead. `self.cut` lists the rows of the documents with such a final text."""
        places = self.scores.at[rows]
        tables = []
        for path, start, end in zip(self.paths, *zip(*pairwise(self.starts), strict=True),
                                    strict=True):  # fmt: skip
            inside = places[(places >= start) & (places < end)] - start
            if len(inside) or path == self.paths[0]:
                with DocumentsFile(path) as file:
                    own = [f for f in file.schema_arrow if f.name not in REASON_COLUMNS]
                    batches = [*file.rows(inside, [field.name for field in own])]
                    tables.append(pa.Table.from_batches(batches, pa.schema(own)))
        table = _joined(tables)
        if EDITS not in table.column_names:
            table = table.append_column(EDITS, pa.nulls(len(table), pa.list_(EDIT)))
        table = table.append_column(NUMBER, pa.array(rows, pa.int64()))
        later = pa.array(self.question.steps[at:], pa.string())
        edits = one_array(table[EDITS])
        by = pc.list_parent_indices(edits).filter(
            pc.is_in(pc.struct_field(pc.list_flatten(edits), "step"), value_set=later)
        )
        places = np.unique(by.to_numpy())
        if len(places) and not self.question.now.document_steps[at].only_measures:
            with suppress(LlmcurateError, Unknown, OSError, ValueError):
                table, places = self._restored(table, places, at)
        self.cut = rows[places]
        return table

    def _restored(
        self, table: pa.Table, places: np.ndarray, at: int
    ) -> tuple[pa.Table, np.ndarray]:
        """Replace the texts at `places` in the table by the texts that entered a step. Return the
        table and the places for which no such text was found. A text is accepted only if the
        recorded edits turn it into the stored text."""
        texts, rows = table["text"].to_pylist(), table.take(pa.array(places)).to_pylist()
        wanted = {row["id"]: (int(place), row) for place, row in zip(places, rows, strict=True)}
        later, found = set(self.question.steps[at:]), set()
        began, stage = time.monotonic(), self.question.stage[at]
        parts = takewhile(lambda part: time.monotonic() - began < SECONDS, self.parts)
        label = self.question.steps[at]
        for name, text in entering(self.folders, stage, label, [*wanted], parts):
            place, row = wanted[name]
            edits = [edit for edit in edits_of(row) if edit.step in later]
            steps = (list(of) for _, of in groupby(edits, key=lambda edit: edit.step))
            if text is not None and reduce(edited, steps, text.encode()) == row["text"].encode():
                texts[place] = text
                found.add(place)
        column = table.column_names.index("text")
        table = table.set_column(column, "text", pa.array(texts, pa.large_string()))
        return table, np.array([p for p in places.tolist() if p not in found], np.int64)

    @cached_property
    def folders(self) -> list[Path]:
        return [stage_folder(self.question.out, name) for name in self.question.folders]

    @cached_property
    def parts(self) -> range:
        """The partitions of the run. Raises Unknown if its stages are missing."""
        parts = len(list(self.folders[0].glob("part-*.kept.parquet")))
        if not parts or self.question.corpus.is_home:
            raise Unknown("the stages of the run are missing, or the folder holds several runs")
        return range(parts)

    def _specification(self, stage: int) -> Specification:
        if stage + 1 < len(self.folders):
            behind = self._specification(stage + 1)
            if behind.decisions is not None:
                name = behind.decisions.stem.replace("decisions", "stage")
                return Specification.from_json((self.folders[stage] / f"{name}.json").read_bytes())
        return Specification.in_folder(self.folders[stage])

    def decisions(self, at: int) -> pa.Table:
        stage = self.question.stage[at]
        try:
            self.parts  # noqa: B018 (raises if there are none)
            decisions = self._specification(stage).decisions
        except (OSError, ValueError):
            raise Unknown("the stages of the run are missing") from None
        assert decisions is not None
        return self._known(pq.read_table(self.folders[stage - 1] / decisions.name))

    def _known(self, table: pa.Table) -> pa.Table:
        rows = self._rows(table["id"])
        table = table.set_column(table.column_names.index("n"), "n", pa.array(rows))
        return table.filter(pa.array(rows >= 0))

    def sketches(self, at: int) -> pa.Table:
        stage = self.question.stage[at] - 1
        kind = self._specification(stage).sketch_kind
        corpus = SketchedCorpus(self.folders[stage], len(self.parts), kind, stage == 0)
        inner = ("part", "n", "id")
        names = pq.read_schema(corpus.paths()[0]).names
        batches = sketch_batches(corpus.files(), [n for n in names if n not in inner])
        return self._known(pa.Table.from_batches(batches))

    def sketched_again(self, at: int, step: CorpusStep) -> pa.Table:
        step.open()
        stage = self.question.stage[at]
        tables = chain.from_iterable(stage_input(self.folders, stage, part) for part in self.parts)
        return self._known(pa.concat_tables(sketch_rows(step, table, 0) for table in tables))
