"""The similarity of two texts, computed plainly, and copies with a chosen similarity."""

from __future__ import annotations

import re

WORD = re.compile(r"\w+")


def jaccard(first: str, second: str) -> float:
    """Of the word 5-grams of two texts."""
    words = [WORD.findall(text.lower()) for text in (first, second)]
    a, b = ({tuple(w[i : i + 5]) for i in range(len(w) - 4)} for w in words)
    return len(a & b) / len(a | b) if a or b else 1.0


def near_copy(text: str, target: float, other: str) -> str:
    """The text with other words at its end, until the similarity to it is about `target`."""
    words = text.split()
    grams = len(words) - 4
    changed = round(grams * (1 - target) / (1 + target))
    return " ".join([*words[: len(words) - changed], *(f"{other}{n}" for n in range(changed))])
