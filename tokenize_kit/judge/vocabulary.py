"""The vocabulary of a tokenizer: the text of every token, and those that no text gives."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tokenize_kit.encode.parts import pack
from tokenize_kit.formats.tokenizer_json import from_letters, to_letters
from tokenize_kit.judge.candidate import Candidate
from tokenize_kit.pattern.categories import SCRIPTS, scripts

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


def token_bytes(candidate: Candidate, vocabulary: Vocabulary) -> dict[int, bytes]:
    """What each token that is not special stands for within a text, whatever the vocabulary's way
    to spell it, so that tokens of two vocabularies can be compared."""
    names: dict[int, bytes] = {}
    for number, text in vocabulary.texts.items():
        spelled = candidate.tokens[number]
        if number in candidate.byte_ids:
            names[number] = bytes([int(spelled[1:-1], 16)])
        else:
            names[number] = text.encode("utf-8", "replace")
            if number in vocabulary.parts:
                with suppress(KeyError):  # a spelling that is no bytes
                    names[number] = from_letters(spelled)
    return names


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
    ids, sizes = candidate.encode(*pack(raw))
    return [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])] if len(texts) else []


# What is not a script: of no letters at all; of letters of more than one script; bytes that are no
# whole character; special tokens and the unknown one.
COMMON, SEVERAL, PARTS, SPECIAL = "Common", "several scripts", "parts of characters", "special"
LABELS = (*SCRIPTS, SEVERAL, PARTS, SPECIAL)
# Of no script: digits, signs and spaces; marks that go with any letter; unassigned.
_NONE = [SCRIPTS.index(name) for name in ("Common", "Inherited", "Unknown")]


def token_scripts(candidate: Candidate, vocabulary: Vocabulary) -> np.ndarray:
    """uint8[ids]: the script of each token as a position in LABELS; SPECIAL where there is none."""
    labels = np.full(max(candidate.tokens) + 1, LABELS.index(SPECIAL), np.uint8)
    numbers = list(vocabulary.texts)
    labels[numbers] = text_scripts(list(vocabulary.texts.values()))
    labels[list(vocabulary.parts)] = LABELS.index(PARTS)
    return labels


def text_scripts(texts: list[str]) -> np.ndarray:
    """uint8[texts]: the script of each text's letters, a position in LABELS."""
    packed = "".join(texts).encode("utf-32-le", "surrogatepass")
    of_character = scripts()[np.frombuffer(packed, np.uint32)]
    of_text = np.repeat(np.arange(len(texts)), list(map(len, texts)))
    is_letter = ~np.isin(of_character, _NONE)
    lowest, highest = np.full(len(texts), len(SCRIPTS)), np.full(len(texts), -1)
    np.minimum.at(lowest, of_text[is_letter], of_character[is_letter])
    np.maximum.at(highest, of_text[is_letter], of_character[is_letter])
    several = np.where(lowest < highest, LABELS.index(SEVERAL), highest)
    return np.where(highest < 0, LABELS.index(COMMON), several).astype(np.uint8)


def by_script(
    candidate: Candidate, labels: np.ndarray, counts: np.ndarray, sizes: np.ndarray
) -> list[dict[str, Any]]:
    """Of each script the tokens of the vocabulary, how many texts use, how often, and the bytes of
    text that they stand for; those of the most tokens first.

    labels: token_scripts(); counts, sizes: int64[ids], uses of each token and their bytes.
    """
    in_vocabulary = np.zeros(len(labels), np.bool_)
    in_vocabulary[list(candidate.tokens)] = True
    columns = {
        "vocab": in_vocabulary,
        "used": in_vocabulary & (counts > 0),
        "tokens": counts,
        "bytes": sizes,
    }
    sums = {
        name: np.bincount(labels, values, len(LABELS)).astype(np.int64)
        for name, values in columns.items()
    }
    rows = [
        {"label": LABELS[k], **{name: int(values[k]) for name, values in sums.items()}}
        for k in np.flatnonzero(sums["vocab"])
    ]
    return sorted(rows, key=lambda row: (-row["vocab"], row["label"]))
