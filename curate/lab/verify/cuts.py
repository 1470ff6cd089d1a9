"""pydivsufsort searches the texts of sampled documents for passages that stand more than once.

Each cut must stand elsewhere, and of what stands more than once in the sampled texts all must go
but the preferred copy.
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

MOST_BYTES = 8 << 20  # of text that is sorted


@dataclass(frozen=True)
class Cut:
    """A passage of a document that goes, in bytes of the text that the step saw."""

    id: str
    start: int
    end: int
    partner: str | None
    earlier: bool


def check(run: FinishedRun) -> list[Tally]:
    """Two tallies for each `dedup_suffix_array`."""
    steps = run.need(DedupSuffixArray)
    need("pydivsufsort", "pydivsufsort")
    return [tally for step in steps for tally in _check(run, step)]


def _check(run: FinishedRun, step: DedupSuffixArray) -> list[Tally]:
    if step.of == "tokens":
        raise NotChecked(f"{step.label}: its unit is tokens, and bytes are searched here")
    texts = _texts(run, step)
    cuts = [
        Cut(row.id, row.span_start, row.span_end or 0, row.partner_id, bool(row.partner_corpus))
        for row in run.decisions_on(step.method, texts)
        if row.span_start is not None and (row.partner_id or step.keep == "none")
    ]
    return [_stand_elsewhere(step, cuts, texts), _one_copy_stays(step, cuts, texts)]


def _texts(run: FinishedRun, step: DedupSuffixArray) -> dict[str, bytes]:
    """Documents with cuts, their partners, and as many others, up to MOST_BYTES, the preferred one
    first."""
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


class Sorted:
    """Texts behind each other in a suffix array. starts: of the texts, in their order, which is
    that of `names`."""

    def __init__(self, texts: dict[str, bytes]) -> None:
        from pydivsufsort import divsufsort

        self.names = list(texts)
        self.starts: list[int] = []
        size = 0
        for name in self.names:
            self.starts.append(size)
            size += len(texts[name]) + 1
        # 0xFF stands in no UTF-8 text, so that a passage ends with its text.
        self.data = b"".join(texts[name] + b"\xff" for name in self.names)
        self.array = divsufsort(self.data) if self.data else np.empty(0, np.int32)

    def text_of(self, position: int) -> int:
        """The number of the text that a position is in."""
        return bisect_right(self.starts, position) - 1

    def positions(self, pattern: bytes) -> np.ndarray:
        """Return where a passage stands."""
        from pydivsufsort import sa_search

        count, begin = sa_search(self.data, self.array, pattern)
        hits: np.ndarray = self.array[begin : begin + count] if count > 0 else self.array[:0]
        return hits

    def shared(self) -> np.ndarray:
        """int64[bytes]: by rank in the array, how many bytes a suffix shares with the one before
        it."""
        from pydivsufsort import kasai

        following = np.asarray(kasai(self.data, self.array), np.int64)
        return np.concatenate([[0], following[: len(self.array) - 1]])


def _stand_elsewhere(step: DedupSuffixArray, cuts: list[Cut], texts: dict[str, bytes]) -> Tally:
    tally = Tally("pydivsufsort", f"{step.label}: cuts stand elsewhere")
    arrays = Sorted(texts)
    place = dict(zip(arrays.names, arrays.starts, strict=True))
    for cut in cuts:
        if cut.id not in texts:
            continue
        if not 0 <= cut.start < cut.end <= len(texts[cut.id]):
            tally.differs(cut.id, f"bytes {cut.start} to {cut.end} are no part of its text")
            continue
        if cut.earlier:
            tally.explain("earlier_corpus")
            continue
        if cut.partner is not None and cut.partner not in texts:
            continue
        if _stands(step, arrays, texts[cut.id], place[cut.id], cut):
            tally.agrees()
        else:
            where = cut.partner or "any sampled document"
            tally.differs(cut.id, f"bytes {cut.start} to {cut.end} do not stand in {where} too")
    return tally


def _stands(step: DedupSuffixArray, arrays: Sorted, text: bytes, base: int, cut: Cut) -> bool:
    """Whether a cut stands in its partner too: as a whole, or else each of its bytes in a passage
    of the threshold's length that does, since copies may overlap each other."""

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
    if step.of == "bytes":  # two cuts that meet within a character meet behind it
        stop = int(np.flatnonzero((data[: cut.end] & 0xC0) != 0x80)[-1])
    characters = step.of == "characters"
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


def _one_copy_stays(step: DedupSuffixArray, cuts: list[Cut], texts: dict[str, bytes]) -> Tally:
    """Windows of the threshold's length that stand more than once: all go but the first position
    and those that overlap it, with `keep: none` all. Where a cut shrinks to characters, words or
    lines, none of these may be left whole of a passage."""
    tally = Tally("pydivsufsort", f"{step.label}: one copy stays")
    arrays = Sorted(texts)
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
    begins, ends = _going(step, arrays, data)
    left = cut_before[ends] - cut_before[begins] < ends - begins
    tally.agrees(int((~left).sum()))
    # Windows that meet are one passage, which is cut as a whole.
    passages = np.split(np.arange(len(begins)), np.flatnonzero(begins[1:] > ends[:-1]) + 1)
    exact = step.boundary == "character" and step.of == "characters"
    for windows in passages:
        count = int(left[windows].sum())
        if not count:
            continue
        start, end = int(begins[windows[0]]), int(ends[windows[-1]])
        number = arrays.text_of(start)
        name, base = arrays.names[number], arrays.starts[number]
        a, z = start - base, end - base
        tally.checked += count
        if exact or _whole(step.boundary, texts[name], a, z, covered[base:]):
            tally.disagree += count
            how = f"bytes {a} to {z} are a copy, and some of them stay"
            tally.differences.append(Difference(name, how))
        else:
            tally.explained["boundary"] += count
    del tally.differences[MOST_NAMED:]
    return tally


def _going(
    step: DedupSuffixArray, arrays: Sorted, data: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(begins, ends: int64[windows]) of the windows that should go, in the order of the texts."""
    if step.of == "characters":
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
    # Windows are equal where their suffixes stand side by side and share that many bytes.
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


def _whole(boundary: str, text: bytes, start: int, end: int, covered: np.ndarray) -> bool:
    """Return whether the uncut bytes of a passage hold a whole character, word or line."""
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
