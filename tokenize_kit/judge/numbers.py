"""Numbers and indentation: how a tokenizer cuts what has a regular form.

Models add and compare better where numbers of equal length are cut alike, and best where groups of
digits are counted from the right (Singh and Strouse 2024, "Tokenization counts"). What is tried is
made here, so no text decides it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tokenize_kit.encode.parts import pack
from tokenize_kit.judge.candidate import Candidate

DIGITS = 8  # of the longest number
_EACH = 100  # numbers of a length, where there are as many
_STEP = 2_654_435_761  # Knuth's multiplier: numbers that look drawn, always the same
INDENTS = {"2 spaces": "  ", "4 spaces": "    ", "tabs": "\t"}
DEPTHS = (1, 2, 3, 4, 6, 8)


def number_cuts(candidate: Candidate) -> list[dict[str, Any]]:
    """By the digits of a number: `tokens` on average, `alike`, the share of numbers that are cut in
    the commonest way, and that way, `groups`, as [3, 1] for 1234 cut into 123 and 4."""
    rows = []
    for digits in range(1, DIGITS + 1):
        least, count = 10 ** (digits - 1), 9 * 10 ** (digits - 1)
        numbers = range(count) if count <= _EACH else (_STEP * k % count for k in range(_EACH))
        ways = _ways(candidate, [str(least + number) for number in numbers])
        way, times = min(ways.items(), key=lambda item: (-item[1], item[0]))
        total = sum(ways.values())
        rows.append(
            {
                "digits": digits,
                "tokens": sum(len(groups) * n for groups, n in ways.items()) / total,
                "alike": times / total,
                "groups": list(way),
            }
        )
    return rows


def _ways(candidate: Candidate, numbers: list[str]) -> Counter[tuple[int, ...]]:
    """How often numbers of one length are cut into which groups of digits, each in a line of its
    own."""
    data, offsets = pack([f"is {number}\n".encode() for number in numbers])
    ids, sizes = candidate.encode(data, offsets)
    starts, ends = candidate.spans(data, offsets, ids, sizes)
    bounds = np.cumsum([0, *sizes])
    ways: Counter[tuple[int, ...]] = Counter()
    for row, base in enumerate(offsets[:-1].tolist()):
        tokens = slice(bounds[row], bounds[row + 1])
        first, digits = base + 3, len(numbers[row])
        inner = {k - first for k in (*starts[tokens].tolist(), *ends[tokens].tolist())}
        cuts = [0, *sorted(k for k in inner if 0 < k < digits), digits]
        ways[tuple(np.diff(cuts).tolist())] += 1
    return ways


def grouping(rows: list[dict[str, Any]]) -> str:
    """The rule by which `number_cuts` says that numbers are cut: single, right or left (groups
    counted from that side), whole, or uneven where there is none."""
    if any(row["alike"] < 1 for row in rows):
        return "uneven"
    longest = [row["groups"] for row in rows if len(row["groups"]) > 1]
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


def indentation(candidate: Candidate) -> list[dict[str, Any]]:
    """By the depth of a line of code: the tokens that its indentation takes, more than the line has
    without, with each of INDENTS."""
    lines = ["", *(indent * depth for depth in DEPTHS for indent in INDENTS.values())]
    raw = [f"if x:\n{indent}return x\n".encode() for indent in lines]
    _, sizes = candidate.encode(*pack(raw))
    more = (sizes[1:] - sizes[0]).reshape(len(DEPTHS), len(INDENTS)).tolist()
    return [
        {"depth": depth, **dict(zip(INDENTS, tokens, strict=True))}
        for depth, tokens in zip(DEPTHS, more, strict=True)
    ]
