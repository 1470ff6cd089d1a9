"""The tally of a tokenizer: costs of texts by group, and how often each token came up."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from kernel_cache import njit
from tokenize_kit.formats.tokenizer_json import to_letters
from tokenize_kit.judge.candidate import Candidate, texts_of
from tokenize_kit.pattern.categories import CODE_POINTS, members

# A word is a run of letters and marks (\p{L}, \p{M}): white space, digits and signs end it, so
# `don't` is two. Han, kana, Thai, Lao, Khmer and Burmese are written without spaces, and a run of
# theirs may be a whole sentence: of those, tokens are counted a letter, marks not counted as
# such.

WORDS, WORD_TOKENS, WHOLE, LETTERS, LETTER_TOKENS = range(5)  # columns of `count_words`
_LETTER, _SPACELESS, _MARK = 1, 2, 3
_RUNS = (
    (0x0E00, 0x0F00),  # Thai, Lao
    (0x1000, 0x10A0), (0xA9E0, 0xAA00), (0xAA60, 0xAA80),  # Burmese
    (0x1780, 0x1800),  # Khmer
    (0x3005, 0x3008), (0x3021, 0x302A), (0x3038, 0x303C), (0x3400, 0x4DC0), (0x4E00, 0xA000),
    (0xF900, 0xFB00), (0x20000, 0x33480),  # Han
    (0x3040, 0x3130), (0x31A0, 0x31C0), (0x31F0, 0x3200), (0xFF66, 0xFFA0),  # kana, bopomofo
    (0x1AFF0, 0x1B170),  # further kana
)  # fmt: skip


@lru_cache(maxsize=1)
def letter_kinds() -> np.ndarray:
    """uint8[0x110000]: 0 in no word, 1 letter, 2 letter of a script without spaces, 3 mark."""
    kinds = np.zeros(CODE_POINTS, np.uint8)
    letters = members("L")
    kinds[letters] = _LETTER
    for first, end in _RUNS:
        kinds[first:end][letters[first:end]] = _SPACELESS
    kinds[members("M")] = _MARK
    return kinds


@njit(nogil=True, inline="always")
def _words_code_point(data, i):
    """(code point, bytes) at a position of valid UTF-8."""
    b = np.int64(data[i])
    if b < 0x80:
        return b, 1
    if b < 0xE0:
        return (b & 0x1F) << 6 | (data[i + 1] & 0x3F), 2
    if b < 0xF0:
        return (b & 0x0F) << 12 | np.int64(data[i + 1] & 0x3F) << 6 | (data[i + 2] & 0x3F), 3
    high = (b & 0x07) << 18 | np.int64(data[i + 1] & 0x3F) << 12
    return high | np.int64(data[i + 2] & 0x3F) << 6 | (data[i + 3] & 0x3F), 4


@njit(cache=True, nogil=True)
def count_words(data, offsets, kinds, starts, ends, sizes):
    """int64[rows, 5]: words, tokens that have a part of one (once for each word), words of one
    token; letters of scripts without spaces, tokens that have a part of their runs.

    kinds: letter_kinds(); starts, ends: int64[tokens] in `data`, in order; sizes: tokens of each
    row. A token without bytes (part of a character that the next one holds) counts where it stands.
    """
    out = np.zeros((len(offsets) - 1, 5), np.int64)
    stop = 0
    for row in range(len(offsets) - 1):
        token = stop
        stop += sizes[row]
        i, end = offsets[row], offsets[row + 1]
        while i < end:
            a = i
            family = 0
            letters = 0
            while i < end:
                code, size = _words_code_point(data, i)
                kind = int(kinds[code])
                if kind == 0:
                    break
                if kind != 3:
                    if family == 0:
                        family = kind
                    elif kind != family:
                        break
                    letters += 1
                i += size
            if i == a:
                i += size
                continue
            while token < stop and ends[token] <= a and starts[token] < a:
                token += 1
            n = 0
            k = token
            while k < stop and starts[k] < i:
                if ends[k] > a or starts[k] >= a:
                    n += 1
                k += 1
            if family == 2:
                out[row, 3] += letters
                out[row, 4] += n
            else:
                out[row, 0] += 1
                out[row, 1] += n
                out[row, 2] += n == 1
    return out


# A token is unreachable where its text, encoded, does not give it back (Land and Bartolo 2024,
# "Fishing for Magikarp", section 3.1). Its neighbours may matter, so it is tried alone, behind
# short texts and before a rare character, and what comes out in any of these positions is
# reachable.

LONGEST = 10  # tokens listed
SAMPLES = 20  # unreachable tokens listed
# What a token is tried between.
_AROUND = (("«", ""), ("", ""), ("\n", ""), ("x", ""), ("q", ""), ("1", ""), ("«", "\U0001f0a1"))
_BAD = "\ufffd"
_BADS = (_BAD, to_letters(_BAD.encode()))


@dataclass
class Vocabulary:
    """The tokens that are not special. texts: the text of each within a text; parts: ids of
    tokens that hold no whole characters, as bytes; unreachable: ids, whole tokens only."""

    texts: dict[int, str] = field(default_factory=dict)
    parts: frozenset[int] = frozenset()
    unreachable: dict[int, list[int]] = field(default_factory=dict)  # what comes back instead

    def dump(self, met: Container[int] = ()) -> dict[str, Any]:
        """Counts and examples as JSON values; met: ids that some text gave, trial or not."""
        unreachable = [n for n in sorted(self.unreachable) if n not in met]
        whole = {n: text for n, text in self.texts.items() if n not in self.parts}
        longest = sorted(whole, key=lambda n: (-len(whole[n].encode("utf-8", "replace")), n))
        return {
            "parts_of_characters": len(self.parts),
            "white_space": sum(text.isspace() for text in whole.values()),
            "digits": sum(text.strip().isdecimal() for text in whole.values()),
            "longest": [
                {
                    "id": n,
                    "text": whole[n],
                    "bytes": len(whole[n].encode("utf-8", "replace")),
                    "characters": len(whole[n]),
                }
                for n in longest[:LONGEST]
            ],
            "unreachable": len(unreachable),
            "unreachable_examples": [
                {"id": n, "text": self.texts[n], "gives": self.unreachable[n]}
                for n in unreachable[:SAMPLES]
            ],
        }


def examine_vocabulary(candidate: Candidate) -> Vocabulary:
    """Reads and tries every token; some seconds for 100,000 where a library encodes."""
    unknown = {candidate.unknown} - {None}
    ordinary = [n for n in sorted(candidate.tokens) if n not in candidate.special | unknown]
    lead = _ids(candidate, [_AROUND[0][0]])[0]
    start = candidate.decode(lead)
    texts: dict[int, str] = {}
    for number in ordinary:
        whole = candidate.decode([*lead, number])
        inside = whole[len(start) :] if whole.startswith(start) else ""
        texts[number] = inside or candidate.decode([number])
    parts = {n for n in ordinary if n in candidate.byte_ids or _is_part(candidate, n, texts[n])}
    return Vocabulary(
        texts, frozenset(parts), _unreachable(candidate, [n for n in ordinary if n not in parts])
    )


def _is_part(candidate: Candidate, number: int, text: str) -> bool:
    """Whether the token's bytes are no whole characters: they decode to U+FFFD, which a token may
    also hold in earnest (EF BF BD)."""
    return _BAD in text and not any(spelling in candidate.tokens[number] for spelling in _BADS)


def _unreachable(candidate: Candidate, numbers: list[int]) -> dict[int, list[int]]:
    candidates = numbers
    results: dict[int, list[int]] = {}
    for before, behind in _AROUND:
        lead = _ids(candidate, [before])[0] if before else []
        encoded = _ids(candidate, [candidate.decode([*lead, n]) + behind for n in candidates])
        for number, ids in zip(candidates, encoded, strict=True):
            if not before and not behind:
                results[number] = ids
        candidates = [n for n, ids in zip(candidates, encoded, strict=True) if n not in ids]
    return {n: results[n] for n in candidates}


def _ids(candidate: Candidate, texts: list[str]) -> list[list[int]]:
    raw = [text.encode("utf-8", "replace") for text in texts]
    data = np.frombuffer(bytearray().join(raw), np.uint8)
    ids, sizes = candidate.encode(data, np.cumsum([0, *map(len, raw)], dtype=np.int64))
    return [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])] if len(texts) else []


ALPHA = 2.5  # Zouhar et al. 2023, where it went best with the quality of translations
MOST_GROUPS = 500  # of a column
OTHERS = "(others)"
EXCERPT = 300  # characters of a text that does not come back
_COUNTED = (
    "texts", "bytes", "characters", "tokens", "unknown", "parts", "words", "word_tokens", "whole",
    "letters", "letter_tokens", "lost",
)  # fmt: skip


def renyi_efficiency(counts: np.ndarray, size: int) -> float | None:
    """H(p) / log(size), H(p) = log(sum of p^2.5) / (1 - 2.5), p: each token's share of all tokens.

    1: every token is as frequent as any other (Zouhar et al. 2023, "Tokenization and the Noiseless
    Channel", with `size` the vocabulary; the authors' tokenization-scorer takes the tokens that
    occur). counts: int64[ids]; None where it is not defined.
    """
    total = counts.sum()
    if not total or size < 2:
        return None
    shares = counts[counts > 0] / total
    entropy = math.log(float((shares**ALPHA).sum())) / (1 - ALPHA)
    return max(0.0, entropy) / math.log(size)


class Tally:
    """Adds up what batches of texts cost in one tokenizer.

    groups: columns by which figures are also given, as `lang`; of a column's labels that come
    after the first most_groups, texts are counted together.
    """

    def __init__(
        self, candidate: Candidate, groups: Sequence[str] = (), most_groups: int = MOST_GROUPS
    ) -> None:
        self._most_groups = most_groups
        self.candidate = candidate
        self.vocabulary = examine_vocabulary(candidate)
        self.counts = np.zeros(max(candidate.tokens) + 1, np.int64)
        self._is_part = np.zeros(len(self.counts), np.bool_)
        self._is_part[list(self.vocabulary.parts)] = True
        self._all = np.zeros(len(_COUNTED), np.int64)
        self._groups: dict[str, dict[str, np.ndarray]] = {name: {} for name in groups}
        self._seconds = {"encode": 0.0, "decode": 0.0}
        self._first_lost: dict[str, Any] | None = None
        self._warm = False

    def add(
        self,
        data: np.ndarray,
        offsets: np.ndarray,
        labels: Mapping[str, Sequence[str | None]] | None = None,
    ) -> None:
        """A batch of valid UTF-8, data: uint8[], offsets: int64[rows + 1]; labels: of each row, by
        group; None is in no group."""
        if len(offsets) < 2:
            return
        if not self._warm:  # what compiles or loads at the first text is not what texts cost
            self.candidate.encode(data, offsets[:2])
            self._warm = True
        began = time.process_time()
        ids, sizes = self.candidate.encode(data, offsets)
        self._seconds["encode"] += time.process_time() - began
        self.counts += np.bincount(ids, minlength=len(self.counts))
        starts, ends = self.candidate.spans(data, offsets, ids, sizes)
        words = count_words(data, offsets, letter_kinds(), starts, ends, sizes)
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        unknown = np.zeros(len(ids), np.bool_)
        if self.candidate.unknown is not None:
            unknown = ids == self.candidate.unknown
        heads = _counts_before((data[offsets[0] : offsets[-1]] & 0xC0) != 0x80)
        rows = np.column_stack(
            [
                np.ones(len(sizes), np.int64),
                np.diff(offsets),
                np.diff(heads[offsets - offsets[0]]),
                sizes,
                np.diff(_counts_before(unknown)[bounds]),
                np.diff(_counts_before(self._is_part[ids])[bounds]),
                words,
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

    def _lost(
        self, data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, bounds: np.ndarray
    ) -> np.ndarray:
        """bool[rows]: which texts do not come back."""
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
        """All figures as JSON values. A ratio of nothing is None; MB/s are of CPU time, of what the
        process did on all its threads."""
        candidate = self.candidate
        usable = [n for n in candidate.tokens if n not in candidate.special]
        used = int((self.counts > 0).sum())
        megabytes = int(self._all[1]) / 1e6
        speeds = {
            f"{task}_mb_per_cpu_second": megabytes / seconds if seconds > 0 else None
            for task, seconds in self._seconds.items()
        }
        return {
            "tokenizer": candidate.path,
            "engine": candidate.engine,
            "vocab": len(candidate.tokens),
            "special": len(candidate.special),
            **_figures(self._all),
            "renyi_efficiency": renyi_efficiency(self.counts, len(candidate.tokens)),
            "renyi_efficiency_of_used": renyi_efficiency(self.counts, used),
            "used": used,
            "used_share": used / len(candidate.tokens),
            "never_used": sum(not self.counts[n] for n in usable),
            **self.vocabulary.dump(set(np.flatnonzero(self.counts).tolist())),
            "first_lost": self._first_lost,
            **speeds,
            **{name: self._group(name) for name in self._groups},
        }

    def _group(self, name: str) -> list[dict[str, Any]]:
        """Rows by label, those of the most bytes first, each against English where it is there."""
        sums = self._groups[name]
        rows = [{"label": label, **_figures(row)} for label, row in sums.items()]
        rows.sort(key=lambda row: (-row["bytes"], row["label"]))
        english = next((row for row in rows if row["label"] in ("en", "eng")), None)
        if english and name == "lang":
            for row in rows:
                for unit in ("byte", "character", "text"):
                    row[f"premium_a_{unit}"] = _ratio(
                        row[f"tokens_a_{unit}"], english[f"tokens_a_{unit}"]
                    )
        return rows


def _counts_before(marks: np.ndarray) -> np.ndarray:
    """int[n + 1]: how many are set before each position; in 32 bits where that is enough, for a
    text may be a long one."""
    counts = np.zeros(len(marks) + 1, np.int32 if len(marks) < 1 << 31 else np.int64)
    np.cumsum(marks, out=counts[1:])
    return counts


def _difference(first: str, second: str) -> int:
    """The first character in which two texts differ."""
    for at, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return at
    return min(len(first), len(second))


def _code_point(text: str, at: int) -> str:
    """The code point at a position, as a number: two spaces may look the same."""
    return f"U+{ord(text[at]):04X}" if at < len(text) else "the end"


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _figures(sums: np.ndarray) -> dict[str, Any]:
    figures = dict(zip(_COUNTED, sums.tolist(), strict=True))
    tokens = figures["tokens"]
    return {
        **figures,
        "bytes_a_token": _ratio(figures["bytes"], tokens),
        "characters_a_token": _ratio(figures["characters"], tokens),
        "tokens_a_byte": _ratio(tokens, figures["bytes"]),
        "tokens_a_character": _ratio(tokens, figures["characters"]),
        "tokens_a_text": _ratio(tokens, figures["texts"]),
        "fertility": _ratio(figures["word_tokens"], figures["words"]),
        "whole_share": _ratio(figures["whole"], figures["words"]),
        "tokens_a_letter": _ratio(figures["letter_tokens"], figures["letters"]),
        "unknown_share": _ratio(figures["unknown"], tokens),
        "parts_share": _ratio(figures["parts"], tokens),
    }
