"""The scores that a run stored, as arrays with one row per document, kept documents first; and
verdicts: which documents the rules keep with other thresholds, and which were not measured.

Only the columns that rules compare are read, and only the lengths of texts. The lengths are cached
in the run's folder, since reading texts takes longer than everything else.

A step measures every document of its stage (one pass over the documents). So its stored scores show
which of these documents pass a rule with another threshold. A dropped document has no scores from
later stages. The later steps of its stage still measure it, but none edits its text. Scores from
steps after an editing step do not count for it, because they are of the unedited text. A document
is *unmeasured* if no known verdict of a rule drops it, but some verdicts of rules are not known.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.manifests import FOLDERS, manifest_path
from curate.documents.attributes import DocumentsFile, read_schema
from curate.documents.limits import Langs, marks
from curate.documents.rejected import REASONS, is_rejected_file, reason_codes
from curate.inspect.report.store import numeric_columns
from curate.inspect.whatif.question import READER, Question, Rule
from curate.run.homes import Corpus
from llmcurate.base.disk.files import replacing
from llmcurate.base.errors import UsageError, may_not_write

FEW = 4096  # texts per batch: allocating memory for more takes longer than reading them
THREADS = min(4, os.cpu_count() or 1)  # for decompression; each holds the columns of one file
SIZES, HOME_SIZES = Path("stages", "text-sizes"), Path("runs", ".text-sizes")


@dataclass(frozen=True)
class Scores:
    """The scores of all documents of a run; arrays have one row per document, kept documents first.

    `forgotten` counts rejected documents without a row, whose reasons and texts were deleted.
    `primary` is the first rule that a document matches, as an index into `rules`.
    """

    kept: int  # number of documents in corpus/
    at: np.ndarray  # int64[rows]: number of the row over all files
    forgotten: int
    columns: dict[str, np.ndarray]  # name -> float64[rows], NaN if not measured
    integers: frozenset[str]  # columns of whole numbers
    langs: list[str]
    lang: np.ndarray  # int[rows]: index into `langs`, -1 for no language
    bytes: np.ndarray  # int64[rows]: length of the text
    rules: list[str]
    primary: np.ndarray  # int[rows], -1 if kept
    marks: dict[str, np.ndarray]  # rule -> rows that match it, int64[matches]

    def __len__(self) -> int:
        return len(self.bytes)


def read(corpus: Corpus, columns: Iterable[str]) -> Scores:
    """Read the named columns of a finished run. Raises UsageError if that is not possible."""
    out, kept_files, gone_files = corpus.out, corpus.kept, corpus.gone
    if not kept_files or not gone_files:
        raise UsageError(f"{out} holds no corpus/ and rejected/ of a run: give the OUT of a run")
    names = list(dict.fromkeys(columns))
    paths = [*kept_files, *gone_files]
    try:
        starts = np.concatenate(([0], np.cumsum([pq.read_metadata(p).num_rows for p in paths])))
        numbers = {name: np.empty(int(starts[-1]), np.float64) for name in names}
        rows = [slice(a, z) for a, z in pairwise(starts.tolist())]
        with ThreadPoolExecutor(THREADS) as pool:
            filled = [
                pool.submit(_fill, numbers, *place) for place in zip(paths, rows, strict=True)
            ]
            sizes = _sizes(corpus, paths, pool)
            tables = [each.result() for each in filled]
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(f"{out} cannot be read ({reason}): run its recipe again") from None
    if starts[-1] != len(sizes):
        raise UsageError(f"{out / SIZES} does not fit the run: delete it and try again")
    first = int(starts[len(kept_files)])
    langs, lang = _langs(tables)
    rules, primary, marks = _reasons(tables[len(kept_files) :], first)
    whole = numeric_columns(read_schema(paths[0])) | numeric_columns(read_schema(paths[-1]))
    integers = frozenset(n for n in names if whole.get(n))
    present = np.arange(len(primary)) < first
    present |= primary >= 0
    forgotten = int(np.count_nonzero(~present))
    if forgotten:
        numbers = {name: values[present] for name, values in numbers.items()}
        lang, sizes, primary = lang[present], sizes[present], primary[present]
        row = np.cumsum(present) - 1
        marks = {rule: row[rows] for rule, rows in marks.items()}
    at = np.flatnonzero(present)
    return Scores(
        first, at, forgotten, numbers, integers, langs, lang, sizes, rules, primary, marks
    )


def _fill(numbers: dict[str, np.ndarray], path: Path, rows: slice) -> pa.Table:
    with DocumentsFile(path) as file:
        have = set(file.schema_arrow.names)
        others = [
            n for n in ("lang", REASONS) if n in have and (is_rejected_file(path) or n == "lang")
        ]
        columns_read = [*(n for n in numbers if n in have), *others]
        table = file.read(columns=columns_read, use_threads=False)
    for name, array in numbers.items():
        at = rows.start
        if name not in have:
            array[rows] = np.nan
            continue
        for chunk in table[name].chunks:
            values = pc.fill_null(pc.cast(chunk, pa.float64()), np.nan)
            array[at : at + len(chunk)] = np.from_dlpack(values)
            at += len(chunk)
    return table.select(others)


def _sizes(corpus: Corpus, paths: list[Path], pool: ThreadPoolExecutor) -> np.ndarray:
    out, digest = corpus.out, hashlib.sha256()
    for name in FOLDERS:
        manifest = manifest_path(out / name)
        digest.update(manifest.read_bytes() if manifest.is_file() else b"")
    for path in paths:  # a folder without manifests is identified by its files
        stat = path.stat()
        digest.update(json.dumps([path.name, stat.st_size, stat.st_mtime_ns]).encode())
    key = digest.digest()
    stored = out / (HOME_SIZES if corpus.is_home else SIZES)
    if stored.exists():
        data = stored.read_bytes()
        if data[: len(key)] == key and len(data) % 8 == 0:
            return np.frombuffer(data, np.int64, offset=len(key)).copy()
    sizes = np.concatenate(list(pool.map(_lengths, paths)))
    try:
        with replacing(stored) as aside:
            aside.write_bytes(key + sizes.tobytes())
    except OSError as error:  # a read-only run: works without the cache
        if not may_not_write(error):
            raise
    return sizes


def _lengths(path: Path) -> np.ndarray:
    sizes = [np.zeros(0, np.int64)]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(FEW, columns=["text"], use_threads=False):
            size = pc.fill_null(pc.binary_length(batch.column(0)), 0)
            sizes.append(size.to_numpy(zero_copy_only=False).astype(np.int64))
    return np.concatenate(sizes)


def _langs(tables: list[pa.Table]) -> tuple[list[str], np.ndarray]:
    column = pa.chunked_array(
        [
            chunk
            for t in tables
            for chunk in (
                t["lang"].chunks
                if "lang" in t.column_names
                else [pa.nulls(t.num_rows, pa.string())]
            )
        ],
        pa.string(),
    )
    coded = column.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    at = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
    return coded.dictionary.to_pylist(), at.astype(np.int64)


def _reasons(
    tables: list[pa.Table], first_row: int
) -> tuple[list[str], np.ndarray, dict[str, np.ndarray]]:
    names: dict[str, int] = {}
    rows, codes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    start = first_row
    for table in tables:
        for lists in table[REASONS].chunks:
            sizes, numbers = reason_codes(lists, names)
            rows.append(np.repeat(np.arange(start, start + len(lists)), sizes))
            codes.append(numbers)
            start += len(lists)
    row, code = np.concatenate(rows), np.concatenate(codes)
    primary = np.full(start, -1, np.int64)
    if len(row):
        first = np.flatnonzero(np.diff(row, prepend=-1))
        primary[row[first]] = code[first]
    order = np.argsort(code, kind="stable")
    ends = np.searchsorted(code[order], np.arange(len(names) + 1))
    marks = {n: row[order[ends[c] : ends[c + 1]]] for n, c in names.items()}
    return list(names), primary, marks


@dataclass
class Verdicts:
    """The decisions of the rules on each document, as far as they are known."""

    scores: Scores
    fails: dict[str, np.ndarray]  # rule -> bool[rows]: True if the document fails it
    number: np.ndarray  # int16[rows]: number of rules that the document fails
    whole: np.ndarray  # bool[rows]: True if the verdict of every step is known

    @property
    def kept(self) -> np.ndarray:
        mask: np.ndarray = (self.number == 0) & self.whole
        return mask

    @property
    def unmeasured(self) -> np.ndarray:
        """bool[rows]: True if no known verdict drops a document, but some verdicts are unknown."""
        mask: np.ndarray = (self.number == 0) & ~self.whole
        return mask


class Decider:
    """Decides from the stored scores which documents the rules keep with other thresholds."""

    def __init__(self, question: Question, scores: Scores) -> None:
        self.question, self.scores = question, scores
        places = {label: at for at, label in enumerate(question.steps)}
        # `step.rule`: a label has no dot, but a rule of a plug-in may.
        self._at = np.array(
            [places.get(n.partition(".")[0], READER) for n in scores.rules] + [READER], np.int64
        )
        # The position of the step that dropped each document; the number of steps if it is kept.
        kept = scores.primary < 0
        self.first = np.where(kept, len(question.steps), self._at[scores.primary])
        self.langs = Langs(scores.langs, scores.lang)
        self._known_to()
        self.stored = {n: np.zeros(len(scores), np.bool_) for n in scores.rules}
        for name, mask in self.stored.items():
            mask[scores.marks[name]] = True
        self.trusted = self._trusted()

    def _known_to(self) -> None:
        """Set arrays with an entry per document: `seen` is the last step that saw the document,
        `until` the last step whose verdict counts. `whole` is True if the verdicts of all steps are
        known. A dropped document still passes through the steps of its stage, but none edits its
        text. Verdicts of steps after an editing step do not count for the document, because they
        are on the unedited text."""
        question, last = self.question, len(self.question.steps) - 1
        ends = [max(i for i, s in enumerate(question.stage) if s == t) for t in question.stage]
        until, seen = [last], [last]
        for at in range(last + 1):
            edits = [i for i in range(at, ends[at] + 1) if question.edits[i]]
            until.append(edits[0] if edits else ends[at])
            seen.append(ends[at])
        first = self._at[self.scores.primary]
        at_all = np.where(self.scores.primary < 0, 0, first + 1)
        unread = (self.scores.primary >= 0) & (first == READER)
        self.until = np.where(unread, READER, np.array(until)[at_all]).astype(np.int16)
        self.seen = np.where(unread, READER, np.array(seen)[at_all]).astype(np.int16)
        edited = np.array([True, *(not any(question.edits[i:]) for i in range(last + 1))])
        self.whole = (self.scores.primary < 0) | ((self.until == last) & edited[at_all])

    def _masks(self, rules: list[Rule], now: bool) -> dict[str, np.ndarray]:
        masks = marks(
            [r.now if now else r.was for r in rules],
            lambda column: self.scores.columns[rules[0].column(column)],
            self.langs,
        )
        saw = self.seen >= rules[0].at
        return {f"{rules[0].step}.{n}": mask & saw for n, mask in masks.items()}

    def _by_step(self) -> dict[str, list[Rule]]:
        by_step: dict[str, list[Rule]] = {}
        for rule in self.question.rules:
            by_step.setdefault(rule.step, []).append(rule)
        return by_step

    def _trusted(self) -> set[str]:
        """Return the names of the rules that can be tried with other settings: with the run's
        settings, the stored scores match exactly the documents that the run recorded for the rule.
        Raises UsageError if a rule whose settings changed is not among these (perhaps another
        version of its step made the run)."""
        trusted = set()
        for rules in self._by_step().values():
            masks = self._masks(rules, now=False)
            for rule in rules:
                mask = masks.get(rule.name)
                stored = self.stored.get(rule.name)
                if mask is None or stored is None:
                    same = not (mask if mask is not None else np.zeros(1)).any()
                    same = same and (stored is None or not stored.any())
                else:
                    same = bool(np.array_equal(mask, stored))
                if same:
                    trusted.add(rule.name)
                elif rule.was != rule.now:
                    raise UsageError(
                        f"{rule.name}: stored scores and reasons disagree, so another threshold"
                        " cannot be tried on them; run the recipe again"
                    )
        return trusted

    def decide(self) -> Verdicts:
        fails = {n: m for n, m in self.stored.items() if n not in self.trusted}
        for rules in self._by_step().values():
            for name, mask in self._masks(rules, now=True).items():
                if name in self.trusted:
                    fails[name] = mask
        number = np.zeros(len(self.scores), np.int16)
        places = {label: at for at, label in enumerate(self.question.steps)}
        for name, mask in fails.items():
            at = places.get(name.partition(".")[0], READER)
            if at >= 0 and (self.until < at).any():
                fails[name] = mask = mask & (self.until >= at)
            number += mask
        return Verdicts(self.scores, fails, number, self.whole)
