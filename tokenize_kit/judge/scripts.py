"""Tokens by script: how much of a vocabulary is Thai, Latin, Han, and how much of it texts use."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenize_kit.judge.candidate import Candidate
from tokenize_kit.judge.vocabulary import Vocabulary
from tokenize_kit.pattern.categories import SCRIPTS, scripts

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
