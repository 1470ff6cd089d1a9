"""Decontamination in plain Python: tuples of strings instead of hashes."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from curate.text.words import UNSPACED


@dataclass(frozen=True)
class Unit:
    """A word, or a letter or digit, in lower case; where it stands, in characters."""

    key: str
    start: int
    end: int


def lower(c: str) -> str:
    small = c.lower()
    return small if unicodedata.category(c) in ("Lu", "Lt") and len(small) == 1 else c


def kind(c: str) -> str:
    """letter, cluster, mark, digit, _ or nothing."""
    category = unicodedata.category(c)
    if category[0] == "L":
        return "cluster" if any(a <= ord(c) <= z for a, z in UNSPACED) else "letter"
    if category[0] == "M":
        return "mark"
    if category[0] == "N" and c.isalnum():
        return "digit"
    return c if c == "_" else ""


def words(text: str) -> list[Unit]:
    """Runs of word characters; a character of a script without spaces is a word with its marks."""
    units: list[Unit] = []
    open_, cluster = False, False
    for i, c in enumerate(text):
        this = kind(c)
        if not this:
            open_ = cluster = False
        elif open_ and this != "cluster" and not (cluster and this != "mark"):
            units[-1] = Unit(units[-1].key + lower(c), units[-1].start, i + 1)
        else:
            units.append(Unit(lower(c), i, i + 1))
            open_, cluster = True, this == "cluster"
    return units


def letters(text: str) -> list[Unit]:
    return [Unit(lower(c), i, i + 1) for i, c in enumerate(text) if kind(c) not in ("", "_")]


def units(text: str, by_character: bool) -> list[Unit]:
    return letters(text) if by_character else words(text)


# Units of a word in Thai, Lao, Burmese, Khmer; in Han and kana.
CLUSTERS = (
    (0x0E00, 0x0E7F, 4.0),
    (0x0E80, 0x0EFF, 3.8),
    (0x1000, 0x109F, 2.9),
    (0x1780, 0x17FF, 3.7),
)
OTHERS = 1.7


def word_count(keys: tuple[str, ...]) -> float:
    """The words that units are, by script."""
    clusters = [ord(key[0]) for key in keys if kind(key[0]) == "cluster"]
    count = float(len(keys) - len(clusters))
    left = len(clusters)
    for first, last, size in CLUSTERS:
        of_script = sum(first <= code <= last for code in clusters)
        count, left = count + of_script / size, left - of_script
    return count + left / OTHERS


def windows(text: str, by_character: bool, length: int, shortest: int) -> list[tuple[str, ...]]:
    """All windows of an item; one, of all it has, where it is shorter than a window."""
    keys = tuple(u.key for u in units(text, by_character))
    count = len(keys) if by_character else round(word_count(keys))
    if count < length:
        return [keys] if keys and count >= shortest else []
    length = round(length * len(keys) / max(count, 1))
    return [keys[i : i + length] for i in range(len(keys) - length + 1)]


def positions(text: str, by_character: bool, wanted: set[tuple[str, ...]]) -> set[tuple]:
    """(window, first byte, byte behind the last) of every window that the text holds."""
    hits = set()
    have = units(text, by_character)
    for size in {len(w) for w in wanted}:
        for i in range(len(have) - size + 1):
            window = tuple(u.key for u in have[i : i + size])
            if window in wanted:
                a, z = have[i].start, have[i + size - 1].end
                hits.add((window, len(text[:a].encode()), len(text[:z].encode())))
    return hits


def shares(document: str, items: list[list[tuple[str, ...]]], by_character: bool) -> list[float]:
    """The share of each item's different windows that the document holds."""
    wanted = {w for item in items for w in item}
    have = {p[0] for p in positions(document, by_character, wanted)}
    return [len(set(i) & have) / len(set(i)) if i else 0.0 for i in items]
