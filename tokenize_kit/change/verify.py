"""Compare two tokenizers: they must give the same ids for hard texts, all tokens and a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tokenize_kit.encode.parts import pack
from tokenize_kit.formats.forms import NORMAL, SPACE, CannotHold, Form, Pieces
from tokenize_kit.judge.compare import HARD_TEXTS, SCRIPTS

Buffers = tuple[np.ndarray, np.ndarray]  # data: uint8[], offsets: int64[rows + 1]
Texts = Callable[[], Iterable[Buffers]]  # reads the texts anew at each call
Encode = Callable[[np.ndarray, np.ndarray], Buffers]  # -> (ids: uint32[], counts: int64[rows])


_ROWS = 256
_ROUNDING = 2.0**-20


@dataclass
class Comparison:
    """The outcome of a comparison. texts, bytes: the number of texts compared and of their bytes;
    ties: the number of texts that SentencePiece splits in another, equally good way, because it
    adds scores in float32."""

    texts: int = 0
    bytes: int = 0
    ties: int = 0


def pack_texts(texts: list[str]) -> Buffers:
    raw = [text.encode() for text in texts]
    return pack(raw)


def builtin_batches(form: Form) -> Iterator[Buffers]:
    """Yield the built-in texts, and each token's text alone and after a letter."""
    added = [] if isinstance(form, Pieces) else [token.content for token in form.added]
    yield pack_texts([*HARD_TEXTS, *SCRIPTS, *added])
    if isinstance(form, Pieces):
        words = [text.replace(SPACE, " ") for text, _, kind in form.pieces if kind == NORMAL]
    else:
        words = []
        for token in form.tokens:
            try:
                words.append(token.decode("utf-8"))
            except UnicodeDecodeError:
                continue  # part of a character
    for first in range(0, len(words), _ROWS):
        part = words[first : first + _ROWS]
        yield pack_texts([*part, *(f"x{word}" for word in part)])


def compare(
    before: Encode, after: Encode, batches: Iterable[Buffers], scores: np.ndarray | None = None
) -> Comparison:
    """Encode texts with both tokenizers. Raises CannotHold naming the first text whose ids differ.
    scores: float64[ids], the scores of Unigram pieces if one of the tokenizers is SentencePiece.
    SentencePiece adds scores in float32, so rounding decides between equally good ways to split a
    text; such differences are allowed."""
    checked = Comparison()
    for data, offsets in batches:
        ids, sizes = before(data, offsets)
        new_ids, lengths = after(data, offsets)
        if len(ids) != len(new_ids) or not (np.array_equal(ids, new_ids)):
            positions, others = (np.cumsum([0, *n.tolist()]) for n in (sizes, lengths))
            for row, (a, z) in enumerate(pairwise(offsets.tolist())):
                was = ids[positions[row] : positions[row + 1]]
                now = new_ids[others[row] : others[row + 1]]
                if np.array_equal(was, now):
                    continue
                sums = (0.0, np.inf) if scores is None else (scores[was].sum(), scores[now].sum())
                if abs(sums[0] - sums[1]) > _ROUNDING * max(abs(sums[0]), 1.0):
                    raise _difference(data[a:z].tobytes().decode("utf-8"), was, now)
                checked.ties += 1
        checked.texts += len(offsets) - 1
        checked.bytes += int(offsets[-1] - offsets[0])
    return checked


@dataclass(frozen=True)
class Lengths:
    """The average bytes per token of the same texts with the old and with the new tokenizer."""

    measured_texts: int
    measured_bytes: int
    bytes_a_token_before: float
    bytes_a_token_after: float


# Called with a batch, its ids by the old tokenizer and by the new one.
OnBatch = Callable[[Buffers, Buffers, Buffers], None]


def compare_lengths(
    before: Encode, after: Encode, batches: Iterable[Buffers], on_batch: OnBatch
) -> Lengths:
    """Encode texts with both tokenizers and measure bytes per token."""
    texts = size = old = new = 0
    for batch in batches:
        ids, new_ids = before(*batch), after(*batch)
        on_batch(batch, ids, new_ids)
        offsets = batch[1]
        texts, size = texts + len(offsets) - 1, size + int(offsets[-1] - offsets[0])
        old, new = old + len(ids[0]), new + len(new_ids[0])
    return Lengths(texts, size, size / max(old, 1), size / max(new, 1))


def _difference(text: str, was: np.ndarray, now: np.ndarray) -> CannotHold:
    same = min(len(was), len(now))
    differs = np.flatnonzero(was[:same] != now[:same])
    at = int(differs[0]) if len(differs) else same
    shown = text if len(text) <= 60 else f"{text[:60]}..."
    return CannotHold(
        f"its ids would differ: in {shown!r} token {at} is"
        f" {_token(was, at)} before and {_token(now, at)} after"
    )


def _token(ids: np.ndarray, at: int) -> str:
    return str(ids[at]) if at < len(ids) else "no token"


def unigram_scores(form: Form) -> np.ndarray | None:
    """Return float64[ids], the scores of a Unigram model; None for other models."""
    if not isinstance(form, Pieces) or form.kind != "unigram":
        return None
    return np.array([score if kind == NORMAL else 0.0 for _, score, kind in form.pieces])
