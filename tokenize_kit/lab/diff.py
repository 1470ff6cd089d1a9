"""Differences between two tokenizers: in vocabularies, in settings, and in how they cut texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tokenize_kit.judge.candidate import (
    LABELS,
    Candidate,
    open_candidate,
    token_bytes,
    token_scripts,
)
from tokenize_kit.judge.compare import Batch
from tokenize_kit.judge.tally import Tally, Texts
from tokenize_kit.judge.words import Segmentation

Row = dict[str, int | str | None]
EXAMPLES = 20
LONGEST = 200  # the most bytes of a segment that is counted by its text
# The figures of `Tally.result` that are shown for both tokenizers.
_FIGURES = (
    "tokenizer", "engine", "vocab", "special", "texts", "bytes", "characters", "words", "tokens",
    "bytes_a_token", "fertility", "whole_share", "boundary_f1", "cluster_cut_share",
    "unknown_share", "used", "lost",
)  # fmt: skip


def diff(
    first: Path,
    second: Path,
    batches: Iterable[Batch] = (),
    *,
    pattern: str | None = None,
    segmentation: Segmentation | None = None,
) -> dict[str, Any]:
    """Compare two tokenizers and return the differences as JSON values. `tokenizers` has the
    figures of both. `scripts` has the number of tokens that one or both have, by script, and `only`
    the most used tokens that one of them lacks. `ids`, `order`, `special` and `settings` compare
    ids, token order, special tokens and settings. `texts` counts the places split differently (None
    without texts). Tokens are the same if they spell the same bytes. Other parameters are those of
    `judge.compare.compare`. Raises LlmcurateError naming a tokenizer that cannot be read."""
    tallies = [Tally(open_candidate(path, pattern)) for path in (first, second)]
    cuts = Cuts()
    for data, offsets, _ in batches:
        texts = Texts.of(data, offsets, segmentation)
        spans = [tally.add(texts) for tally in tallies]
        cuts.add(texts, spans)
    names = [token_bytes(tally.candidate, tally.vocabulary) for tally in tallies]
    numbers = [{name: n for n, name in reversed(by_id.items())} for by_id in names]
    totals, scripts, only = _vocabularies(tallies, names, numbers)
    return {
        "tokenizers": [{k: t.result()[k] for k in _FIGURES} for t in tallies],
        **totals,
        "scripts": scripts,
        "only": only,
        "ids": _ids(numbers),
        "order": _order([t.candidate for t in tallies], names),
        "special": _special([t.candidate for t in tallies]),
        "settings": _settings([t.candidate for t in tallies]),
        "texts": cuts.result() if cuts.texts else None,
    }


def _shown(token: bytes) -> str:
    return token.decode("utf-8", "backslashreplace")


def _vocabularies(
    tallies: list[Tally], names: list[dict[int, bytes]], numbers: list[dict[bytes, int]]
) -> tuple[dict[str, int], list[Row], list[list[Row]]]:
    rows: dict[str, list[int]] = {}
    only: list[list[Row]] = []
    for side, tally in enumerate(tallies):
        other = numbers[1 - side]
        labels = token_scripts(tally.candidate, tally.vocabulary)
        absent = []
        for token, n in numbers[side].items():
            row = rows.setdefault(LABELS[labels[n]], [0, 0, 0])
            if token not in other:
                row[side] += 1
                absent.append(n)
            elif side == 0:
                row[2] += 1
        absent.sort(key=lambda n: (-tally.counts[n], n))
        only.append(
            [
                {"id": n, "text": _shown(names[side][n]), "uses": int(tally.counts[n])}
                for n in absent[:EXAMPLES]
            ]
        )
    scripts: list[Row] = [
        {"label": label, "first": row[0], "second": row[1], "both": row[2]}
        for label, row in sorted(rows.items(), key=lambda item: (-sum(item[1]), item[0]))
    ]
    sides = enumerate(("first", "second", "both"))
    return {name: sum(row[side] for row in rows.values()) for side, name in sides}, scripts, only


def _ids(numbers: list[dict[bytes, int]]) -> dict[str, int | list[Row]]:
    first, second = numbers
    in_order = sorted(first, key=first.__getitem__)
    moved = [token for token in in_order if second.get(token, first[token]) != first[token]]
    same = sum(second.get(token) == n for token, n in first.items())
    return {
        "same": same,
        "moved": len(moved),
        "examples": [
            {"text": _shown(token), "first": first[token], "second": second[token]}
            for token in moved[:EXAMPLES]
        ],
    }


def _order(candidates: list[Candidate], names: list[dict[int, bytes]]) -> dict[str, int | str]:
    (kind, first), (other_kind, second) = (candidate.order() for candidate in candidates)
    if kind != other_kind or kind == "none":
        return {"kind": "unlike" if kind != other_kind else "none"}
    values = [
        {names[side][n]: value for n, value in order.items() if n in names[side]}
        for side, order in enumerate((first, second))
    ]
    shared = values[0].keys() & values[1].keys()
    if kind == "scores":
        unlike = {t for t in shared if abs(values[0][t] - values[1][t]) > 1e-6}
        return {"kind": kind, "shared": len(shared), "unlike": len(unlike)}
    orders = [sorted(of_one, key=of_one.__getitem__) for of_one in values]
    shortest = min(map(len, orders))
    unlike_at = (k for k in range(shortest) if orders[0][k] != orders[1][k])
    common = [[token for token in order if token in shared] for order in orders]
    return {
        "kind": kind,
        "first": len(orders[0]),
        "second": len(orders[1]),
        "shared": len(shared),
        "same_until": next(unlike_at, shortest),
        "same_order": common[0] == common[1],
    }


def _special(candidates: list[Candidate]) -> list[Row]:
    by_text = [{c.tokens[n]: n for n in sorted(c.special)} for c in candidates]
    texts = sorted(by_text[0].keys() | by_text[1].keys())
    first, second = by_text
    return [
        {"text": text, "first": first.get(text), "second": second.get(text)}
        for text in texts
        if first.get(text) != second.get(text)
    ]


def _settings(candidates: list[Candidate]) -> list[Row]:
    first, second = (candidate.settings() for candidate in candidates)
    names = sorted(first.keys() | second.keys())
    return [
        {"name": name, "first": first.get(name), "second": second.get(name)}
        for name in sorted(names, key=lambda name: not name.startswith(_FIRST))
        if first.get(name) != second.get(name)
    ]


# Settings that decide ids are listed first.
_FIRST = ("model", "normalizer", "pre_tokenizer", "pattern")
Spans = tuple[np.ndarray, np.ndarray]


class Cuts:
    """Counts the places at which two tokenizers split the same texts differently. Boundaries that
    both tokenizers have divide a text into segments. A segment is split differently if one of the
    two has a boundary inside. Such segments are counted by their text, so memory grows with the
    number of different ones."""

    def __init__(self) -> None:
        self.texts = self.bytes = self.words = 0
        self._unlike = {"texts": 0, "words": 0, "bytes": 0, "stretches": 0}
        self._stretches: Counter[tuple[bytes, tuple[int, ...], tuple[int, ...]]] = Counter()

    def add(self, texts: Texts, spans: list[Spans]) -> None:
        """Add a batch. `spans` has, for each tokenizer, the (starts, ends) of its tokens."""
        data, base = texts.data, int(texts.offsets[0])
        length = int(texts.offsets[-1]) - base
        marks = np.zeros((2, length + 1), np.bool_)
        for side, (starts, ends) in enumerate(spans):
            marks[side, starts - base] = marks[side, ends - base] = True
        rows = texts.offsets - base
        shared = marks[0] & marks[1]
        shared[rows] = True
        unlike = np.flatnonzero((marks[0] != marks[1]) & ~shared)
        bounds = np.flatnonzero(shared)
        self.texts += len(rows) - 1
        self.bytes += length
        of_text = np.searchsorted(rows, unlike, side="right")
        self._unlike["texts"] += len(np.unique(of_text))
        words = texts.words()
        self.words += len(words)
        if not len(unlike):
            return
        # A word has no boundary inside if as many boundaries lie before its end as before its
        # second byte.
        before = np.searchsorted(unlike, words[:, 1]) - np.searchsorted(unlike, words[:, 0] + 1)
        self._unlike["words"] += int((before > 0).sum())
        stretches = np.unique(np.searchsorted(bounds, unlike, side="right"))
        starts, ends = bounds[stretches - 1], bounds[stretches]
        self._unlike["bytes"] += int((ends - starts).sum())
        self._unlike["stretches"] += len(stretches)
        raw = data[base : base + length].tobytes()
        for a, z in zip(starts.tolist(), ends.tolist(), strict=True):
            if z - a <= LONGEST:
                inner = [tuple(np.flatnonzero(of_one[a + 1 : z]).tolist()) for of_one in marks]
                self._stretches[raw[a:z], inner[0], inner[1]] += 1

    def result(self) -> dict[str, int | list[dict[str, int | list[str]]]]:
        """Return the counts, and as `examples` the most common segments that the tokenizers split
        differently and that contain letters, with the pieces of both."""
        worded = (item for item in self._stretches.items() if _has_letter(item[0][0]))
        commonest = sorted(worded, key=lambda item: (-item[1], item[0]))
        return {
            "texts": self.texts,
            "words": self.words,
            "bytes": self.bytes,
            **{f"unlike_{name}": count for name, count in self._unlike.items()},
            "examples": [
                {"uses": uses, "first": _pieces(raw, one), "second": _pieces(raw, other)}
                for (raw, one, other), uses in commonest[:EXAMPLES]
            ],
        }


def _has_letter(raw: bytes) -> bool:
    return any(c.isalpha() for c in raw.decode("utf-8", "ignore"))


def _pieces(raw: bytes, inner: tuple[int, ...]) -> list[str]:
    cuts = [0, *(k + 1 for k in inner), len(raw)]
    return [_shown(raw[a:z]) for a, z in pairwise(cuts)]
