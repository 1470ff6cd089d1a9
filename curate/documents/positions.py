"""Where bytes of a step's input stand in a document's text after that step and later ones.

Edits of a document are spans of the input of the step that made them, in the order of the steps
(docs/recipes.md), so that a place can be followed from step to step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

Piece = tuple[int, int]  # first byte, byte behind the last


def left_of(pieces: Iterable[Piece], edits: Iterable[Mapping[str, Any]]) -> list[Piece]:
    """What is left of the pieces after the edits, as places in the text that the edits made.

    pieces: in bytes of the input of the step of the first edit, in order and apart; edits: of one
    document as its column has them. What was replaced counts as gone.
    """
    found = [p for p in pieces if p[0] < p[1]]
    for _, group in groupby(edits, key=lambda e: e["step"]):
        spans = sorted((e["start"], e["end"], e["replacement"] or "") for e in group)
        found = _after(found, spans)
    return found


def length(pieces: Iterable[Piece]) -> int:
    """Bytes of pieces that are apart."""
    return sum(b - a for a, b in pieces)


def _after(pieces: list[Piece], spans: list[tuple[int, int, str]]) -> list[Piece]:
    """The pieces without the spans, moved to where they stand then."""
    found: list[Piece] = []
    shift = 0  # by which bytes behind the spans so far have moved
    at = 0
    for start, end in pieces:
        # Spans that end before the piece only move it.
        while at < len(spans) and spans[at][1] <= start:
            shift += _moved(spans[at])
            at += 1
        here, moved, nth = start, shift, at
        while nth < len(spans) and spans[nth][0] < end:
            span = spans[nth]
            if span[0] > here:
                found.append((here + moved, span[0] + moved))
            here = max(here, span[1])
            moved += _moved(span)
            nth += 1
        if here < end:
            found.append((here + moved, end + moved))
    return found


def _moved(span: tuple[int, int, str]) -> int:
    return len(span[2].encode()) - (span[1] - span[0])
