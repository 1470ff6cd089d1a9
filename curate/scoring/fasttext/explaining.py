"""Explanations of a score: the share of each word and n-gram of a line in it.

A line's hidden vector is the mean of its features' rows, and a label's logit is its product with
the label's own row. So the logit is a sum with one term a feature, and nothing is approximated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curate.scoring.fasttext.features import (
    END_WORD,
    ROOM,
    begins_as_label,
    bucket_of,
    entry_among,
    hashed,
    next_word,
    ngrams_from,
    row_among,
    same,
    signed,
    word_ngram,
)
from curate.scoring.fasttext.hidden import add_rows
from curate.scoring.fasttext.reading import HS, Output, Weights
from llmcurate.base.kernels import njit

KINDS = ("word", "n-gram", "words")
_WORD, _NGRAM, _WORDS = range(3)


@dataclass(frozen=True)
class Share:
    """A feature of a line. text: the word, the n-gram (`<` and `>` are its word's ends), or the
    words; kind: of KINDS; times: how often it occurs; adds: to the logit, all times together."""

    text: str
    kind: str
    times: int
    adds: float


@njit(cache=True, nogil=True)
def features(model: Weights, line: np.ndarray, out: np.ndarray) -> int:
    """How many features a line (with its newline, where it has one) has, in fastText's order.

    out: int64[any, 6] is filled as far as it goes: row of the input matrix; kind; start and end of
    the word or words in the line, the newline's for `</s>`; from and to in <word> of an n-gram.
    """
    words = model.words
    minn, maxn, buckets, first = words.minn, words.maxn, words.buckets, words.words
    pruned, kept, sieve = words.pruned, words.kept, words.sieve
    scratch = np.empty((ROOM + maxn, 3), np.int64)
    most = len(line) // 2 + 2 if words.ngrams > 1 else 0
    seen = np.empty((most, 3), np.int64)  # hash, start, end
    count = n_words = 0
    at, ended = 0, False
    while at < len(line) and not ended:
        begin, at, state = next_word(line, at, len(line))
        if begin == len(line):
            break
        if begin == at:
            ended = True
            at += 1
            state = hashed(END_WORD, 0, len(END_WORD))
            entry = words.end
        else:
            ended = same(line, begin, at, END_WORD, 0, len(END_WORD))
            entry = entry_among(
                words.slots, words.starts, words.ends, words.data, line, begin, at, state
            )
            if entry >= first or (entry < 0 and begins_as_label(line, begin, at)):
                continue
        if words.ngrams > 1:
            seen[n_words] = state, begin, at
            n_words += 1
        if entry >= 0:
            if count < len(out):
                out[count] = entry, _WORD, begin, at, 0, 0
            count += 1
        place = 0
        while maxn > 0 and not ended and place < at - begin + 2:
            many, place = ngrams_from(
                minn, maxn, buckets, first, pruned, kept, sieve, line, begin, at, place, scratch, 0
            )
            for n in range(many):
                if count < len(out):
                    out[count] = scratch[n, 0], _NGRAM, begin, at, scratch[n, 1], scratch[n, 2]
                count += 1
    for i in range(n_words):
        gram = signed(seen[i, 0])
        for j in range(i + 1, min(n_words, i + words.ngrams)):
            gram = word_ngram(gram, seen[j, 0])
            row = row_among(first, pruned, kept, bucket_of(buckets, gram))
            if row >= 0:
                if count < len(out):
                    out[count] = row, _WORDS, seen[i, 1], seen[j, 2], 0, 0
                count += 1
    return count


@njit(cache=True, nogil=True)
def products(model: Weights, rows: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """float64[rows]: the rows of the input matrix, int64[rows, any] with their numbers first, times
    direction: float64[dim]."""
    out = np.zeros(len(rows))
    vector = np.empty(len(direction), np.float32)
    for i in range(len(rows)):
        vector[:] = 0
        add_rows(model.rows, rows[i : i + 1], 1, vector)
        for d in range(len(direction)):
            out[i] += vector[d] * direction[d]
    return out


def direction(output: Output, label: int) -> np.ndarray:
    """float64[dim]: what a hidden vector is multiplied by to give a label's logit.

    Hierarchical softmax has no logit but a branch a node on the way to the label; there it is the
    sum of them, those that lead away counted negative.
    """
    rows = output.dense.astype(np.float64) * output.norms[:, None]
    if output.kind != HS:
        return rows[label]
    total = np.zeros(rows.shape[1])
    labels, node = len(rows), label
    for parent in range(labels, 2 * labels - 1):  # parents have greater numbers
        if node in (output.left[parent], output.right[parent]):
            total += rows[parent - labels] * (1 if node == output.right[parent] else -1)
            node = parent
    return total


def explain(model: Weights, line: bytes, label: int) -> tuple[list[Share], float]:
    """(the features of a line by what they add, the most in either direction first; their sum,
    which is the logit of the label)."""
    data = np.frombuffer(bytearray(line), np.uint8)
    rows = np.empty((features(model, data, np.empty((0, 6), np.int64)), 6), np.int64)
    features(model, data, rows)
    adds = products(model, rows, direction(model.output, label)) / max(1, len(rows))
    together: dict[tuple[str, int], list[float]] = {}
    for (_, kind, start, end, begin, to), value in zip(rows.tolist(), adds.tolist(), strict=True):
        raw = line[start:end]
        if kind == _NGRAM:
            raw = (b"<" + raw + b">")[begin:to]
        else:
            raw = b" ".join(raw.replace(b"\n", b" </s>").replace(b"\0", b" ").split())
        together.setdefault((raw.decode("utf-8", "replace"), kind), []).append(value)
    shares = [Share(text, KINDS[kind], len(v), sum(v)) for (text, kind), v in together.items()]
    shares.sort(key=lambda s: (-abs(s.adds), s.text, s.kind))
    return shares, float(adds.sum())
