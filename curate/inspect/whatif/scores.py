"""The scores that a run stored, as arrays: one row a document, kept ones first; and verdicts, the
documents that rules keep under other thresholds, and those that nobody measured.

Only the columns that rules look at are read, and of the texts only how long they are; those
lengths are written down beside the run, since reading texts takes longer than all the rest.

A step measures every document of its stage, so a stored column and a threshold decide a rule for
all of them. Two things end what is known of a document that was rejected: the stage, for what comes
later never saw it; and within the stage a step that edits only texts that nothing had marked, for
what stands behind it measured this text uncut. Marks from beyond that point do not count, and a
document that nothing else holds back is *unmeasured*: kept by these rules, undecided by the rest.
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

FEW = 4096  # texts at once: to get memory for more of them takes longer than to read them
THREADS = min(4, os.cpu_count() or 1)  # for decompression; memory is a file's columns a thread
SIZES, HOME_SIZES = Path("stages", "text-sizes"), Path("runs", ".text-sizes")


@dataclass(frozen=True)
class Scores:
    """Of all documents of a run.

    kept: how many of the rows stand in corpus/. at: int64[rows], their places in the files, one
    after the other. forgotten: rejected documents that are no rows, since what marked them was
    forgotten with their texts. columns: name -> float64[rows], NaN where
    nothing was measured; integers: those of whole numbers. lang: int[rows], an index into `langs`,
    -1 for none. bytes: int64[rows] of text.
    primary: int[rows], an index into `rules` of the first reason, -1 for kept ones. marks: rule ->
    int64[marked], the rows that the rule marked.
    """

    kept: int
    at: np.ndarray
    forgotten: int
    columns: dict[str, np.ndarray]
    integers: frozenset[str]
    langs: list[str]
    lang: np.ndarray
    bytes: np.ndarray
    rules: list[str]
    primary: np.ndarray
    marks: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.bytes)


def read(corpus: Corpus, columns: Iterable[str]) -> Scores:
    """The named columns of a finished run. UsageError where OUT has no documents."""
    out, kept_files, gone_files = corpus.out, corpus.kept, corpus.gone
    if not kept_files or not gone_files:
        raise UsageError(f"{out} holds no corpus/ and rejected/ of a run: name the OUT of one")
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
        raise UsageError(f"{out / SIZES} does not fit the run: remove it and ask again")
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
    """int64[rows]: bytes of the texts, from the file of an earlier call where it is of this run."""
    out, digest = corpus.out, hashlib.sha256()
    for name in FOLDERS:
        manifest = manifest_path(out / name)
        digest.update(manifest.read_bytes() if manifest.is_file() else b"")
    for path in paths:  # a folder without manifests is known by its files
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
    except OSError as error:  # somebody else's run: it can be read all the same
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
    """(rules, primary: int[rows], marks) of the rejected documents' lists of reasons."""
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
    """fails: rule -> bool[rows], for rules that count; number: int16[rows] of rules that fail a
    document; whole: bool[rows], whether every step's verdict on it is known."""

    scores: Scores
    fails: dict[str, np.ndarray]
    number: np.ndarray
    whole: np.ndarray

    @property
    def kept(self) -> np.ndarray:
        """bool[rows]: passes every rule, all of them known."""
        mask: np.ndarray = (self.number == 0) & self.whole
        return mask

    @property
    def unmeasured(self) -> np.ndarray:
        """bool[rows]: passes all rules that are known of it, but not all are."""
        mask: np.ndarray = (self.number == 0) & ~self.whole
        return mask


class Decider:
    """Reads what was stored once, decides for any thresholds."""

    def __init__(self, question: Question, scores: Scores) -> None:
        self.question, self.scores = question, scores
        places = {label: at for at, label in enumerate(question.steps)}
        # `step.rule`: a label holds no point, a rule of a plug-in may.
        self._at = np.array(
            [places.get(n.partition(".")[0], READER) for n in scores.rules] + [READER], np.int64
        )
        # Of each document the place of the first step that marked it, behind all for a kept one.
        kept = scores.primary < 0
        self.first = np.where(kept, len(question.steps), self._at[scores.primary])
        self.langs = Langs(scores.langs, scores.lang)
        self._known_to()
        self.stored = {n: np.zeros(len(scores), np.bool_) for n in scores.rules}
        for name, mask in self.stored.items():
            mask[scores.marks[name]] = True
        self.trusted = self._trusted()

    def _known_to(self) -> None:
        """until: the last step whose marks on a document count; whole; seen: the last step that
        saw it at all."""
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
        """rule -> bool[rows] of one step's rules, wherever it measured; by stored columns."""
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
        """Rules whose stored columns and thresholds give exactly the marks that are stored. A
        changed one that does not is refused: the run was made by another version of its step."""
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
                        " cannot be tried on them; run the recipe anew"
                    )
        return trusted

    def decide(self) -> Verdicts:
        """The verdicts under the settings asked for."""
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
