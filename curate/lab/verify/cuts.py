"""Check of `dedup_suffix_array` with pydivsufsort, on the texts of sampled documents.

Each cut passage must occur elsewhere, and every repeated passage of the sample must be cut except
for its preferred occurrence.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from curate.dedup import survivors
from curate.dedup.suffix_array.exact_substrings import DedupSuffixArray
from curate.lab.verify.finished_run import FinishedRun, drawn_rows, index_of, own_files, rows_of
from curate.lab.verify.tally import MOST_NAMED, Difference, NotChecked, Tally, need
from llmcurate.base.disk.database import scratch_database

MOST_BYTES = 8 << 20  # most bytes of text to sort


@dataclass(frozen=True)
class Cut:
    """A passage that the run cut out of a document."""

    id: str
    start: int  # byte offset in the text that the step received
    end: int
    partner: str | None  # id of the document with the same passage
    earlier: bool  # True if the partner is in an earlier corpus


def check(run: FinishedRun) -> list[Tally]:
    steps = run.need(DedupSuffixArray)
    need("pydivsufsort", "pydivsufsort")
    return [tally for step in steps for tally in _check(run, step)]


def _check(run: FinishedRun, step: DedupSuffixArray) -> list[Tally]:
    if step.unit_in_effect == "tokens":
        raise NotChecked(f"{step.label}: counts in tokens, and only bytes can be searched")
    texts = _texts(run, step)
    cuts = [
        Cut(row.id, row.span_start, row.span_end or 0, row.partner_id, bool(row.partner_corpus))
        for row in run.decisions_on(step.method, texts)
        if row.span_start is not None and (row.partner_id or step.keep == "none")
    ]
    return [_check_cuts(step, cuts, texts), _check_uncut(step, cuts, texts)]


def _texts(run: FinishedRun, step: DedupSuffixArray) -> dict[str, bytes]:
    files = own_files(index_of(run, step))
    half = max(1, run.documents // 2)
    ids: set[str] = set()
    for decision in run.drawn_decisions(step.method, half):
        ids |= {decision.id, decision.partner_id or ""}
    columns = survivors.preferred_by(step.survivor)
    texts: dict[str, bytes] = {}
    orders = []
    size = 0
    for file, row in chain(
        rows_of(files, ids, ["text", *columns]),
        drawn_rows(run, files, ["text", *columns], half, ids),
    ):
        content = (row.pop("text") or "").encode()
        if size + len(content) <= MOST_BYTES:
            size += len(content)
            texts[row["id"]] = content
            orders.append({**row, "part": file.part})
    if not orders:
        return {}
    with TemporaryDirectory() as folder, scratch_database(Path(folder, "spill")) as db:
        db.register("orders", pa.Table.from_pylist(orders))
        query = f"SELECT id FROM orders ORDER BY {survivors.preference(step.survivor)}"
        names = db.execute(query).fetchall()
    return {name: texts[name] for (name,) in names}


class SuffixArray:
    """A suffix array over several texts, joined. `names` are the ids of the texts, and `starts` are
    the positions at which they begin."""

    def __init__(self, texts: dict[str, bytes]) -> None:
        from pydivsufsort import divsufsort

        self.names = list(texts)
        self.starts: list[int] = []
        size = 0
        for name in self.names:
            self.starts.append(size)
            size += len(texts[name]) + 1
        # 0xFF occurs in no UTF-8 text, so no passage crosses the end of a text.
        self.data = b"".join(texts[name] + b"\xff" for name in self.names)
        self.array = divsufsort(self.data) if self.data else np.empty(0, np.int32)

    def text_of(self, position: int) -> int:
        return bisect_right(self.starts, position) - 1

    def positions(self, pattern: bytes) -> np.ndarray:
        from pydivsufsort import sa_search

        count, begin = sa_search(self.data, self.array, pattern)
        hits: np.ndarray = self.array[begin : begin + count] if count > 0 else self.array[:0]
        return hits

    def shared(self) -> np.ndarray:
        """Return int64[bytes]: how many bytes each suffix, in sorted order, shares with the
        previous one."""
        from pydivsufsort import kasai

        following = np.asarray(kasai(self.data, self.array), np.int64)
        return np.concatenate([[0], following[: len(self.array) - 1]])


def _check_cuts(step: DedupSuffixArray, cuts: list[Cut], texts: dict[str, bytes]) -> Tally:
    tally = Tally("pydivsufsort", f"{step.label}: cut passages occur elsewhere")
    arrays = SuffixArray(texts)
    place = dict(zip(arrays.names, arrays.starts, strict=True))
    for cut in cuts:
        if cut.id not in texts:
            continue
        if not 0 <= cut.start < cut.end <= len(texts[cut.id]):
            tally.differs(cut.id, f"bytes {cut.start} to {cut.end} are outside its text")
            continue
        if cut.earlier:
            tally.explain("earlier_corpus")
            continue
        if cut.partner is not None and cut.partner not in texts:
            continue
        if _occurs_elsewhere(step, arrays, texts[cut.id], place[cut.id], cut):
            tally.agrees()
        else:
            where = cut.partner or "any sampled document"
            tally.differs(cut.id, f"bytes {cut.start} to {cut.end} do not occur in {where}")
    return tally


def _occurs_elsewhere(
    step: DedupSuffixArray, arrays: SuffixArray, text: bytes, base: int, cut: Cut
) -> bool:
    """Return True if a cut passage also occurs in the partner (the document that the cut names), or
    at any other place if no partner is named. A passage that is several overlapping duplicates need
    not occur as a whole: windows (stretches of the least length) that occur in the partner or at
    other places must cover the passage."""

    def elsewhere(start: int, end: int) -> bool:
        positions = arrays.positions(text[start:end]).tolist() if start < end else []
        return any(
            cut.partner is None or arrays.names[arrays.text_of(p)] == cut.partner
            for p in positions
            if p != base + start
        )

    if elsewhere(cut.start, cut.end):
        return True
    data = np.frombuffer(text, np.uint8)
    stop = cut.end
    if step.unit_in_effect == "bytes":  # the next cut may cover the last character
        stop = int(np.flatnonzero((data[: cut.end] & 0xC0) != 0x80)[-1])
    characters = step.unit_in_effect == "characters"
    begins = np.flatnonzero((data & 0xC0) != 0x80) if characters else np.arange(len(data))
    bounds = np.append(begins, len(data)).tolist()
    reached = cut.start
    nearest = bisect_right(bounds, cut.start) - 1
    for k in range(max(0, nearest - step.window + 1), len(bounds) - step.window):
        if bounds[k] > reached or reached >= stop:
            break
        end = bounds[k + step.window]
        if end > reached and elsewhere(bounds[k], end):
            reached = end
    return reached >= stop


def _check_uncut(step: DedupSuffixArray, cuts: list[Cut], texts: dict[str, bytes]) -> Tally:
    """Check that each repeated window (`step.window` units of text) is cut. The first occurrence
    and windows that overlap it may stay; with `keep: none` they are cut too. Cuts shrink to whole
    characters, words or lines (`boundary`), so pieces of repeated windows may be left."""
    tally = Tally("pydivsufsort", f"{step.label}: one occurrence is kept")
    arrays = SuffixArray(texts)
    if not arrays.data:
        return tally
    data = np.frombuffer(arrays.data, np.uint8)
    gone = np.zeros(len(data) + 1, np.int64)
    place = dict(zip(arrays.names, arrays.starts, strict=True))
    for cut in cuts:
        if cut.id in place:
            size = len(texts[cut.id])
            gone[place[cut.id] + min(max(cut.start, 0), size)] += 1
            gone[place[cut.id] + min(max(cut.end, 0), size)] -= 1
    covered = np.cumsum(gone)[:-1] > 0
    cut_before = np.concatenate([[0], np.cumsum(covered)])
    begins, ends = _redundant_windows(step, arrays, data)
    left = cut_before[ends] - cut_before[begins] < ends - begins
    tally.agrees(int((~left).sum()))
    # Windows that meet are one passage, which is cut as a whole.
    passages = np.split(np.arange(len(begins)), np.flatnonzero(begins[1:] > ends[:-1]) + 1)
    exact = step.boundary == "character" and step.unit_in_effect == "characters"
    for windows in passages:
        count = int(left[windows].sum())
        if not count:
            continue
        start, end = int(begins[windows[0]]), int(ends[windows[-1]])
        number = arrays.text_of(start)
        name, base = arrays.names[number], arrays.starts[number]
        a, z = start - base, end - base
        tally.checked += count
        if exact or _has_whole_unit(step.boundary, texts[name], a, z, covered[base:]):
            tally.disagree += count
            how = f"bytes {a} to {z} are a duplicate and were not cut completely"
            tally.differences.append(Difference(name, how))
        else:
            tally.explained["boundary"] += count
    del tally.differences[MOST_NAMED:]
    return tally


def _redundant_windows(
    step: DedupSuffixArray, arrays: SuffixArray, data: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if step.unit_in_effect == "characters":
        begins = np.flatnonzero((data & 0xC0) != 0x80)
        ends = np.append(begins[step.window :], np.full(step.window, len(data) + 1))[: len(begins)]
    else:
        begins = np.arange(len(data))
        ends = begins + step.window
    separators = np.concatenate([[0], np.cumsum(data == 0xFF)])
    inside = ends <= len(data)
    begins, ends = begins[inside], ends[inside]
    own_text = separators[begins] == separators[ends]
    begins, ends = begins[own_text], ends[own_text]
    # Windows are equal if their suffixes are adjacent and share at least a window's bytes.
    length = np.zeros(len(data), np.int64)
    length[begins] = ends - begins
    ranked = length[arrays.array]
    number = np.empty(len(data), np.int64)
    number[arrays.array] = np.cumsum((arrays.shared() < ranked) | (ranked == 0))
    _, first, group, count = np.unique(
        number[begins], return_index=True, return_inverse=True, return_counts=True
    )
    going = count[group] > 1 if step.keep == "none" else begins >= ends[first][group]
    return begins[going], ends[going]


def _has_whole_unit(boundary: str, text: bytes, start: int, end: int, covered: np.ndarray) -> bool:
    data = np.frombuffer(bytearray(text), np.uint8)
    if boundary == "character":
        edges = np.flatnonzero((data & 0xC0) != 0x80).tolist()
    elif boundary == "line":
        edges = [0, *(np.flatnonzero(data == 10) + 1).tolist()]
    else:
        from curate.text.words import word_table

        table = word_table(data, np.array([0, len(text)], np.int64))
        edges = [*table.start.tolist(), *table.end.tolist()]
    for a, z in pairwise(sorted({*edges, len(text)})):
        if start <= a and z <= end and text[a:z].strip() and not covered[a:z].any():
            return True
    return False
