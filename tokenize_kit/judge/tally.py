"""What texts cost in a tokenizer: counts by group of texts, and how often each token came."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tokenize_kit.judge.candidate import Candidate, texts_of
from tokenize_kit.judge.vocabulary import examine
from tokenize_kit.judge.words import count_words, letter_kinds

ALPHA = 2.5  # Zouhar et al. 2023, where it went best with the quality of translations
MOST_GROUPS = 500  # of a column; texts of later labels are counted together
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

    groups: columns by which figures are also given, as `lang`.
    """

    def __init__(self, candidate: Candidate, groups: Sequence[str] = ()) -> None:
        self.candidate = candidate
        self.vocabulary = examine(candidate)
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
        heads = _running((data[offsets[0] : offsets[-1]] & 0xC0) != 0x80)
        rows = np.column_stack(
            [
                np.ones(len(sizes), np.int64),
                np.diff(offsets),
                np.diff(heads[offsets - offsets[0]]),
                sizes,
                np.diff(_running(unknown)[bounds]),
                np.diff(_running(self._is_part[ids])[bounds]),
                words,
                self._lost(data, offsets, ids, bounds),
            ]
        )
        self._all += rows.sum(axis=0)
        for name, sums in self._groups.items():
            for row, label in zip(rows, (labels or {}).get(name, ()), strict=False):
                if label is not None:
                    if label not in sums and len(sums) >= MOST_GROUPS:
                        label = OTHERS
                    sums[label] = sums.get(label, 0) + row

    def _lost(
        self, data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, bounds: np.ndarray
    ) -> np.ndarray:
        """bool[rows]: which texts do not come back."""
        lists = [ids[a:z].tolist() for a, z in pairwise(bounds)]
        began = time.process_time()
        back = [self.candidate.decode(one) if one else "" for one in lists]
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
        own = self.candidate
        usable = [n for n in own.tokens if n not in own.special]
        used = int((self.counts > 0).sum())
        megabytes = int(self._all[1]) / 1e6
        speeds = {
            f"{what}_mb_per_cpu_second": megabytes / seconds if seconds > 0 else None
            for what, seconds in self._seconds.items()
        }
        return {
            "tokenizer": own.path,
            "engine": own.engine,
            "vocab": len(own.tokens),
            "special": len(own.special),
            **_figures(self._all),
            "renyi_efficiency": renyi_efficiency(self.counts, len(own.tokens)),
            "renyi_efficiency_of_used": renyi_efficiency(self.counts, used),
            "used": used,
            "used_share": used / len(own.tokens),
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


def _running(marks: np.ndarray) -> np.ndarray:
    """int[n + 1]: how many are set before each place; in 32 bits where that is enough, for a text
    may be a long one."""
    found = np.zeros(len(marks) + 1, np.int32 if len(marks) < 1 << 31 else np.int64)
    np.cumsum(marks, out=found[1:])
    return found


def _difference(one: str, other: str) -> int:
    """The first character in which two texts differ."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


def _code_point(text: str, at: int) -> str:
    """What stands at a place, by its number: two spaces may look the same."""
    return f"U+{ord(text[at]):04X}" if at < len(text) else "the end"


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _figures(sums: np.ndarray) -> dict[str, Any]:
    found = dict(zip(_COUNTED, sums.tolist(), strict=True))
    tokens = found["tokens"]
    return {
        **found,
        "bytes_a_token": _ratio(found["bytes"], tokens),
        "characters_a_token": _ratio(found["characters"], tokens),
        "tokens_a_byte": _ratio(tokens, found["bytes"]),
        "tokens_a_character": _ratio(tokens, found["characters"]),
        "tokens_a_text": _ratio(tokens, found["texts"]),
        "fertility": _ratio(found["word_tokens"], found["words"]),
        "whole_share": _ratio(found["whole"], found["words"]),
        "tokens_a_letter": _ratio(found["letter_tokens"], found["letters"]),
        "unknown_share": _ratio(found["unknown"], tokens),
        "parts_share": _ratio(found["parts"], tokens),
    }
