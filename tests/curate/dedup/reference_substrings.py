"""Exact substring dedup in plain Python: compares every window of every document."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from typing import Any

Span = tuple[int, int]
Row = dict[str, Any]


def windows_to_cut(
    documents: list[list[bytes]], window: int, keep_none: bool = False, earlier: int = 0
) -> list[set[int]]:
    """Places of the windows that go, by document. documents: units, in order of preference; the
    first `earlier` of them stay as they are."""
    positions: dict[tuple[bytes, ...], list[tuple[int, int]]] = defaultdict(list)
    for d, units in enumerate(documents):
        for i in range(len(units) - window + 1):
            positions[tuple(units[i : i + window])].append((d, i))
    gone: list[set[int]] = [set() for _ in documents]
    for copies in positions.values():
        first, at = copies[0]
        for d, i in copies:
            overlaps = d == first and i < at + window
            if d >= earlier and len(copies) > 1 and (keep_none or not overlaps):
                gone[d].add(i)
    return gone


def spans_to_cut(
    documents: list[list[bytes]], window: int, keep_none: bool = False, earlier: int = 0
) -> list[list[Span]]:
    """Unions of windows that go, in units."""
    out = []
    for gone in windows_to_cut(documents, window, keep_none, earlier):
        spans: list[Span] = []
        for i in sorted(gone):
            if spans and i <= spans[-1][1]:
                spans[-1] = (spans[-1][0], i + window)
            else:
                spans.append((i, i + window))
        out.append(spans)
    return out


def in_bytes(units: list[bytes], spans: list[Span]) -> list[Span]:
    """Spans of units as spans of bytes."""
    at = [0]
    for unit in units:
        at.append(at[-1] + len(unit))
    return [(at[a], at[z]) for a, z in spans]


def on_characters(text: str, spans: list[Span]) -> list[Span]:
    """Byte spans that shrink to characters."""
    edges = [0]
    for c in text:
        edges.append(edges[-1] + len(c.encode()))
    return _shrunk(spans, edges)


def on_words(text: str, spans: list[Span]) -> list[Span]:
    """Byte spans that shrink to where no word is cut; Han and kana are words of one character."""
    words = re.finditer("(?:[^\\W\u3040-\u9fff]|\u0301)+", text)
    inside = {k for m in words for k in range(m.start() + 1, m.end())}
    return _shrunk(spans, [len(text[:k].encode()) for k in range(len(text) + 1) if k not in inside])


def on_lines(text: str, spans: list[Span]) -> list[Span]:
    """Byte spans that shrink to starts of lines, at their beginnings, and to either side of a
    newline, at their ends."""
    data = text.encode()
    out = []
    for a, z in spans:
        while a < z and a > 0 and data[a - 1 : a] != b"\n":
            a += 1
        while z > a and z < len(data) and b"\n" not in (data[z : z + 1], data[z - 1 : z]):
            z -= 1
        out.append((a, z))
    return [s for s in out if s[1] > s[0]]


def _shrunk(spans: list[Span], edges: list[int]) -> list[Span]:
    out = []
    for a, z in spans:
        inner = [e for e in edges if a <= e <= z]
        if len(inner) > 1:
            out.append((inner[0], inner[-1]))
    return out


def pages_of(draw: random.Random, count: int) -> list[Row]:
    """Pages of random words, of which many have runs of words of other pages."""
    words = [f"w{i}é" for i in range(500)]
    runs = [" ".join(draw.choices(words, k=20)) for _ in range(20)]
    rows = []
    for i in range(count):
        parts = [
            draw.choice(runs) if draw.random() < 0.4 else " ".join(draw.choices(words, k=15))
            for _ in range(draw.randrange(6))
        ]
        text = draw.choice((" ", "\n")).join(parts)
        rows.append({"id": f"d{i:03d}", "text": text, "url": f"https://host-{i}.test/"})
    return rows
