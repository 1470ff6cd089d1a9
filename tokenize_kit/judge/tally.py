"""Count the tokens that texts cost in a tokenizer, by group, and the uses of each token.

Models add and compare numbers better if numbers of equal length are split alike, and best if groups
of digits are counted from the right (Singh and Strouse 2024, "Tokenization counts"). To see how
numbers and indentations are split, some are generated here; they do not depend on the texts.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tokenize_kit.encode.parts import pack
from tokenize_kit.judge.candidate import (
    Candidate,
    by_script,
    examine_vocabulary,
    texts_of,
    token_scripts,
)
from tokenize_kit.judge.graphemes import (
    IS_CHARACTER,
    cluster_classes,
    cluster_cuts,
    cluster_flags,
    only_marks,
)
from tokenize_kit.judge.words import Segmentation, count_boundaries, count_words

DIGITS = 8  # of the longest numbers
_EACH = 100  # at most this many numbers of each length
_STEP = 2_654_435_761  # Knuth's multiplier: numbers that look random but are always the same
INDENTS = {"2 spaces": "  ", "4 spaces": "    ", "tabs": "\t"}
DEPTHS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class NumberCut:
    """A tokenizer's splits of numbers that have the same number of digits. tokens: the average
    number of tokens; alike: the share of numbers that are split in the most common way; groups: the
    digits per token in this way, such as [3, 1] for 123 and 4."""

    digits: int
    tokens: float
    alike: float
    groups: list[int]


def number_cuts(candidate: Candidate) -> list[NumberCut]:
    """Return how a tokenizer splits numbers into tokens: a NumberCut for each number of digits from
    1 to DIGITS. The numbers are always the same, at most 100 for each number of digits."""
    rows = []
    for digits in range(1, DIGITS + 1):
        least, count = 10 ** (digits - 1), 9 * 10 ** (digits - 1)
        numbers = range(count) if count <= _EACH else (_STEP * k % count for k in range(_EACH))
        splits = _count_splits(candidate, [str(least + number) for number in numbers])
        split, times = min(splits.items(), key=lambda item: (-item[1], item[0]))
        total = sum(splits.values())
        tokens = sum(len(groups) * n for groups, n in splits.items()) / total
        rows.append(NumberCut(digits, tokens, times / total, list(split)))
    return rows


def _count_splits(candidate: Candidate, numbers: list[str]) -> Counter[tuple[int, ...]]:
    data, offsets = pack([f"is {number}\n".encode() for number in numbers])
    cuts = np.union1d(*candidate.spans(data, offsets, *candidate.encode(data, offsets)))
    splits: Counter[tuple[int, ...]] = Counter()
    for base, number in zip(offsets.tolist(), numbers, strict=False):
        first, last = base + 3, base + 3 + len(number)
        inner = cuts[np.searchsorted(cuts, first, "right") : np.searchsorted(cuts, last)]
        splits[tuple(np.diff([first, *inner, last]).tolist())] += 1
    return splits


def grouping(rows: list[NumberCut]) -> str:
    """Return the name of the rule by which numbers are split: into single digits, into groups
    counted from the right or the left, not at all (whole), or by no rule (uneven)."""
    if any(row.alike < 1 for row in rows):
        return "uneven"
    longest = [row.groups for row in rows if len(row.groups) > 1]
    if not longest:
        return "whole"
    size = max(max(groups) for groups in longest)
    if size == 1:
        return "single"
    if all(len(set(groups[1:])) <= 1 and groups[0] <= groups[-1] == size for groups in longest):
        return "right"
    if all(len(set(groups[:-1])) <= 1 and groups[-1] <= groups[0] == size for groups in longest):
        return "left"
    return "uneven"


def indentation(candidate: Candidate) -> list[dict[str, int]]:
    """Return a dict for each depth of indentation: its "depth" and, by kind of indentation (such as
    "tabs"), the number of tokens that indenting a line adds."""
    lines = ["", *(indent * depth for depth in DEPTHS for indent in INDENTS.values())]
    raw = [f"if x:\n{indent}return x\n".encode() for indent in lines]
    _, sizes = candidate.encode(*pack(raw))
    more = (sizes[1:] - sizes[0]).reshape(len(DEPTHS), len(INDENTS)).tolist()
    return [
        {"depth": depth, **dict(zip(INDENTS, tokens, strict=True))}
        for depth, tokens in zip(DEPTHS, more, strict=True)
    ]


ALPHA = 2.5  # Zouhar et al. 2023: it correlated best with translation quality
MOST_GROUPS = 500  # per column
OTHERS = "(others)"
ENGLISH = ("en", "eng")
EXCERPT = 300  # characters of a text that is not decoded exactly
_COUNTED = (
    "texts", "bytes", "characters", "tokens", "unknown", "left_out", "parts",
    "cluster_cuts", "only_marks", "words", "word_tokens", "whole", "letters", "letter_tokens",
    "word_boundaries", "kept_boundaries", "boundaries_within", "lost",
)  # fmt: skip


def renyi_efficiency(counts: np.ndarray, size: int) -> float | None:
    """Return H(p) / log(size), H(p) = log(sum of p^2.5) / (1 - 2.5), where p is each token's share
    of all tokens. 1 means that all tokens are equally frequent (Zouhar et al. 2023, "Tokenization
    and the Noiseless Channel", where `size` is the size of the vocabulary; in the authors'
    tokenization-scorer it is the number of tokens that occur). counts: int64[ids]. Return None if
    the result is undefined."""
    total = counts.sum()
    if not total or size < 2:
        return None
    shares = counts[counts > 0] / total
    entropy = math.log(float((shares**ALPHA).sum())) / (1 - ALPHA)
    return max(0.0, entropy) / math.log(size)


@dataclass(frozen=True)
class Texts:
    """A batch of texts, prepared once for all tokenizers. data: uint8[], valid UTF-8; offsets:
    int64[rows + 1]; kinds: the result of Segmentation.kinds; cuts: bool[bytes + 1], True if a word
    ends before the byte; flags: the result of cluster_flags."""

    data: np.ndarray
    offsets: np.ndarray
    kinds: np.ndarray
    cuts: np.ndarray
    flags: np.ndarray

    @classmethod
    def of(
        cls, data: np.ndarray, offsets: np.ndarray, segmentation: Segmentation | None = None
    ) -> Texts:
        """Prepare a batch of texts. The segmentation finds words in scripts without spaces."""
        segmentation = segmentation or Segmentation()
        data, offsets, cuts = segmentation.cut(data, offsets)
        flags = cluster_flags(data, offsets, cluster_classes())
        return cls(data, offsets, segmentation.kinds(), cuts, flags)

    def counts(self, starts: np.ndarray, ends: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return int64[rows, 10], counts per row: _COUNTED names the columns, from `cluster_cuts`
        to `boundaries_within`. starts, ends: int64[tokens] in `data`; sizes: tokens per row."""
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        first, last = starts - self.offsets[0], ends - self.offsets[0]
        boundaries = np.zeros(len(self.flags), np.bool_)
        boundaries[first] = boundaries[last] = True
        cuts = cluster_cuts(self.flags, first, last)
        marks = only_marks(self.flags, first, last)
        about = (self.data, self.offsets, self.kinds, self.cuts)
        return np.column_stack(
            [
                np.diff(_counts_before(cuts)[bounds]),
                np.diff(_counts_before(marks)[bounds]),
                count_words(*about, starts, ends, sizes),
                count_boundaries(*about, boundaries),
            ]
        )


def cost(candidate: Candidate, texts: Texts) -> tuple[dict[str, int], dict[str, float | None]]:
    """Return (counts, ratios) of one batch, named as in `Tally.result`. To save time, the counts
    of unknown tokens, of parts of characters, and of texts not decoded exactly are left at 0."""
    ids, sizes = candidate.encode(texts.data, texts.offsets)
    spans = candidate.spans(texts.data, texts.offsets, ids, sizes)
    characters = int(((texts.flags & IS_CHARACTER) > 0).sum())
    counts = texts.counts(*spans, sizes).sum(axis=0)
    lengths = [len(sizes), len(texts.flags) - 1, characters, len(ids), 0, 0, 0]
    return _figures(np.array([*lengths, *counts, 0]))


class Tally:
    """Counts the tokens that texts, added in batches, cost in one tokenizer. groups: columns, such
    as `lang`, for whose values separate figures are given. After the first most_groups values of a
    column, all others are counted together. pivot: labels of the language to compare others with.
    """

    def __init__(
        self,
        candidate: Candidate,
        groups: Sequence[str] = (),
        most_groups: int = MOST_GROUPS,
        pivot: Sequence[str] = ENGLISH,
    ) -> None:
        self._most_groups = most_groups
        self._pivot = pivot
        self.candidate = candidate
        self.vocabulary = examine_vocabulary(candidate)
        self.counts = np.zeros(max(candidate.tokens) + 1, np.int64)
        self._sizes = np.zeros(len(self.counts), np.int64)  # bytes that each token stood for
        self._is_part, self._is_byte = (
            _members(len(self.counts), ids) for ids in (self.vocabulary.parts, candidate.byte_ids)
        )
        self._all = np.zeros(len(_COUNTED), np.int64)
        self._groups: dict[str, dict[str, np.ndarray]] = {name: {} for name in groups}
        self._seconds = {"encode": 0.0, "decode": 0.0}
        self._first_lost: dict[str, int | str | list[str]] | None = None
        self._warm = False

    def add(
        self, texts: Texts, labels: Mapping[str, Sequence[str | None]] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add a batch. labels: the label of each row, by column; a row with the label None is in no
        group. Return (starts, ends): int64[tokens], the span of each token."""
        data, offsets = texts.data, texts.offsets
        if len(offsets) < 2:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if not self._warm:  # exclude compiling and loading from the measured time
            self.candidate.encode(data, offsets[:2])
            self._warm = True
        began = time.process_time()
        ids, sizes = self.candidate.encode(data, offsets)
        self._seconds["encode"] += time.process_time() - began
        self.counts += np.bincount(ids, minlength=len(self.counts))
        starts, ends = self.candidate.spans(data, offsets, ids, sizes)
        if self.candidate.byte_ids:
            starts, ends = spread_bytes(starts, ends, self._is_byte[ids])
        self._sizes += np.bincount(ids, ends - starts, len(self.counts)).astype(np.int64)
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        edges = zip(pairwise(offsets.tolist()), pairwise(bounds.tolist()), strict=True)
        lost = [self.candidate.count_unknown(data[a:z], ids[b:e]) for (a, z), (b, e) in edges]
        heads = _counts_before((texts.flags[:-1] & IS_CHARACTER) > 0)
        rows = np.column_stack(
            [
                np.ones(len(sizes), np.int64),
                np.diff(offsets),
                np.diff(heads[offsets - offsets[0]]),
                sizes,
                *((0 * sizes, lost) if self.candidate.unknown is None else (lost, 0 * sizes)),
                np.diff(_counts_before(self._is_part[ids])[bounds]),
                texts.counts(starts, ends, sizes),
                self._lost(data, offsets, ids, bounds),
            ]
        )
        self._all += rows.sum(axis=0)
        for name, sums in self._groups.items():
            for row, label in zip(rows, (labels or {}).get(name, ()), strict=False):
                if label is not None:
                    if label not in sums and len(sums) >= self._most_groups:
                        label = OTHERS
                    sums[label] = sums.get(label, 0) + row
        return starts, ends

    def _lost(
        self, data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, bounds: np.ndarray
    ) -> np.ndarray:
        lists = [ids[a:z].tolist() for a, z in pairwise(bounds)]
        began = time.process_time()
        back = [self.candidate.decode(ids_of_text) if ids_of_text else "" for ids_of_text in lists]
        self._seconds["decode"] += time.process_time() - began
        texts = texts_of(data, offsets)
        lost = np.array([a != b for a, b in zip(texts, back, strict=True)], np.bool_)
        if lost.any() and self._first_lost is None:
            row = int(np.argmax(lost))
            at = _difference(texts[row], back[row])
            cut = slice(max(0, at - 40), at + EXCERPT)
            self._first_lost = {
                "text": int(self._all[0]) + row, "character": at,
                "was": texts[row][cut], "is": back[row][cut],
                "code_points": [_code_point(text, at) for text in (texts[row], back[row])],
            }  # fmt: skip
        return lost

    def result(self) -> dict[str, Any]:
        """Return all figures as JSON values. Undefined ratios are None. Speeds are in MB per second
        of CPU time, summed over all threads of the process."""
        candidate = self.candidate
        labels = token_scripts(candidate, self.vocabulary)
        numbers = number_cuts(candidate)
        usable = [n for n in candidate.tokens if n not in candidate.special]
        used = int((self.counts > 0).sum())
        counts, ratios = _figures(self._all)
        megabytes = counts["bytes"] / 1e6
        speeds = {
            f"{task}_mb_per_cpu_second": megabytes / seconds if seconds > 0 else None
            for task, seconds in self._seconds.items()
        }
        return {
            "tokenizer": candidate.path,
            "engine": candidate.engine,
            "vocab": len(candidate.tokens),
            "special": len(candidate.special),
            **counts,
            **ratios,
            "renyi_efficiency": renyi_efficiency(self.counts, len(candidate.tokens)),
            "renyi_efficiency_of_used": renyi_efficiency(self.counts, used),
            "used": used,
            "used_share": used / len(candidate.tokens),
            "never_used": sum(not self.counts[n] for n in usable),
            **self.vocabulary.dump(set(np.flatnonzero(self.counts).tolist())),
            "first_lost": self._first_lost,
            "scripts": by_script(candidate, labels, self.counts, self._sizes),
            "numbers": [asdict(row) for row in numbers],
            "digit_groups": grouping(numbers),
            "indentation": indentation(candidate),
            **speeds,
            **{name: self._group(name) for name in self._groups},
        }

    def _group(self, name: str) -> list[dict[str, str | float | None]]:
        sums = self._groups[name]
        by_bytes = sorted(sums, key=lambda label: (-sums[label][_COUNTED.index("bytes")], label))
        figures = {label: _figures(sums[label]) for label in by_bytes}
        pivot = next((figures[label][1] for label in by_bytes if label in self._pivot), None)
        units = ("byte", "character", "text") if pivot and name == "lang" else ()
        rows = []
        for label, (counts, ratios) in figures.items():
            row: dict[str, str | float | None] = {"label": label, **counts, **ratios}
            for unit in units:
                cost = f"tokens_a_{unit}"
                row[f"premium_a_{unit}"] = _ratio(ratios[cost], (pivot or {})[cost])
            rows.append(row)
        return rows


def _members(size: int, numbers: Iterable[int]) -> np.ndarray:
    inside = np.zeros(size, np.bool_)
    inside[list(numbers)] = True
    return inside


def spread_bytes(
    starts: np.ndarray, ends: np.ndarray, is_byte: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return `starts` and `ends`, changed so that a token of a single byte has a span of one byte.
    Libraries instead give the whole character's span to the first or to all of its byte tokens.
    starts, ends: int64[tokens]; is_byte: bool[tokens]."""
    follows = np.zeros(len(starts), np.bool_)
    follows[1:] = is_byte[1:] & is_byte[:-1] & (starts[1:] == starts[:-1])
    heads = np.flatnonzero(~follows)
    sizes = np.diff(np.append(heads, len(starts)))
    ranks = np.arange(len(starts)) - np.repeat(heads, sizes)
    limits = np.repeat(np.maximum.reduceat(ends, heads), sizes) if len(heads) else ends
    first = np.minimum(starts + ranks, limits)
    return first, np.where(is_byte, np.minimum(first + 1, limits), ends)


def _counts_before(marks: np.ndarray) -> np.ndarray:
    counts = np.zeros(len(marks) + 1, np.int32 if len(marks) < 1 << 31 else np.int64)
    np.cumsum(marks, out=counts[1:])
    return counts


def _difference(first: str, second: str) -> int:
    for at, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return at
    return min(len(first), len(second))


def _code_point(text: str, at: int) -> str:
    return f"U+{ord(text[at]):04X}" if at < len(text) else "the end"


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _figures(sums: np.ndarray) -> tuple[dict[str, int], dict[str, float | None]]:
    figures = dict(zip(_COUNTED, sums.tolist(), strict=True))
    tokens, left_out = figures["tokens"], figures["left_out"]
    gold, kept = figures["word_boundaries"], figures["kept_boundaries"]
    within = figures["boundaries_within"]
    return figures, {
        "bytes_a_token": _ratio(figures["bytes"], tokens),
        "characters_a_token": _ratio(figures["characters"], tokens),
        "tokens_a_byte": _ratio(tokens, figures["bytes"]),
        "tokens_a_character": _ratio(tokens, figures["characters"]),
        "tokens_a_text": _ratio(tokens, figures["texts"]),
        "fertility": _ratio(figures["word_tokens"], figures["words"]),
        "whole_share": _ratio(figures["whole"], figures["words"]),
        "tokens_a_letter": _ratio(figures["letter_tokens"], figures["letters"]),
        "unknown_share": _ratio(figures["unknown"] + left_out, tokens + left_out),
        "parts_share": _ratio(figures["parts"], tokens),
        "cluster_cut_share": _ratio(figures["cluster_cuts"], tokens),
        "only_marks_share": _ratio(figures["only_marks"], tokens),
        "boundary_precision": _ratio(kept, kept + within),
        "boundary_recall": _ratio(kept, gold),
        # The harmonic mean of both.
        "boundary_f1": _ratio(2 * kept, kept + within + gold) if gold else None,
    }
