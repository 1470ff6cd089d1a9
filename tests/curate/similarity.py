"""The similarity of two texts, computed plainly."""

from __future__ import annotations

from curate.lab.evaluate.planting import WORD


def jaccard(first: str, second: str) -> float:
    """Of the word 5-grams of two texts."""
    words = [WORD.findall(text.lower()) for text in (first, second)]
    a, b = ({tuple(w[i : i + 5]) for i in range(len(w) - 4)} for w in words)
    return len(a & b) / len(a | b) if a or b else 1.0
