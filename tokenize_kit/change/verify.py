"""Compare two tokenizers, each used like the library of its file format: both must give the same
ids, and the same text for them, on hard texts, texts with added tokens, all tokens and a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, zip_longest
from random import Random
from typing import Any

import numpy as np

from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import pack
from tokenize_kit.encode.spm import by_library
from tokenize_kit.formats.forms import (
    BYTE,
    FLAGS,
    NORMAL,
    SPACE,
    Added,
    ByteBpe,
    CannotHold,
    Form,
    Pieces,
)
from tokenize_kit.formats.json_forms import byte_bpe_tokenizer
from tokenize_kit.formats.sentencepiece_model import write_form
from tokenize_kit.judge.candidate import texts_of
from tokenize_kit.judge.compare import HARD_TEXTS, SCRIPTS

Buffers = tuple[np.ndarray, np.ndarray]  # data: uint8[], offsets: int64[rows + 1]
Texts = Callable[[], Iterable[Buffers]]  # reads the texts anew at each call
Encode = Callable[[np.ndarray, np.ndarray], Buffers]  # -> (ids: uint32[], counts: int64[rows])


_ROWS = 256
_ROUNDING = 2.0**-20
_TIED, _MOST_TIED = 24, 4096  # texts per piece that shares its score, and at most per score
_MOST_ADDED = 256  # added tokens without flags that are tried; some files reserve thousands
_MOST_DECODED = 1 << 20  # texts, because decoding is slow
_CONTEXTS = (
    "{0}|{0}{0}|a{0}b|a {0} b| {0} |{0} a|a {0}|{0}a|a{0}|.{0},|({0})|1{0}2|\n{0}\n|a\t{0}\tb"
    "|a  {0}  b|{0}{1}|{0} {1}|a{1}{0}b|é{0}ก|_{0}-"
).split("|")


@dataclass(frozen=True)
class Reading:
    """Functions that encode and decode like the library of a tokenizer's file format. `decode`
    returns the texts of lists of ids. `added` are the added tokens, special ones included. `parse`
    encodes texts and matches special tokens in them; it is None if the library never does so."""

    encode: Encode
    decode: Callable[[list[list[int]]], list[str]]
    added: tuple[Added, ...]
    parse: Callable[[list[str]], list[list[int]]] | None = None


def by_tokenizers(encoder: Encoder, added: tuple[Added, ...]) -> Reading:
    """Return functions to encode and decode as the library `tokenizers` does. `encoder` encodes
    ordinary text. The library itself matches special tokens in text, and decodes."""
    tokenizer = encoder.tokenizer

    def parse(texts: list[str]) -> list[list[int]]:
        tokenizer.encode_special_tokens = False
        found = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        tokenizer.encode_special_tokens = True
        return [encoding.ids for encoding in found]

    decode = partial(tokenizer.decode_batch, skip_special_tokens=False)
    return Reading(encoder.encode, decode, added, parse)


def by_tiktoken(encode: Encode, form: ByteBpe) -> Reading:
    """Return a tokenizer as tiktoken runs it. Special tokens are matched only if tiktoken is
    installed and accepts the pattern."""
    parse = None
    with suppress(ImportError, ValueError):
        from tiktoken import Encoding

        library = Encoding(
            "own", pat_str=form.parts[0], mergeable_ranks=form.tokens, special_tokens=form.special
        )
        parse = partial(library.encode_batch, allowed_special="all")
    return Reading(encode, _decoder(form), form.added, parse)


def by_llama_cpp(form: Form) -> Reading:
    """Return a tokenizer as llama.cpp runs it (tokenizer_st_partition and tokenize in
    src/llama-vocab.cpp): the longest added tokens are cut out of the text first, and every part
    between them is encoded as a separate text."""
    if isinstance(form, ByteBpe):
        tokenizer = byte_bpe_tokenizer(form)
        tokenizer.encode_special_tokens = True
        plain: Encode = Encoder(tokenizer).encode
    else:
        plain = by_library(processor_of(form))
    added = tuple(replace(token, normalized=False) for token in form.added)
    longest = sorted(added, key=lambda token: len(token.content.encode()), reverse=True)

    def parse(texts: list[str], special: bool = True) -> list[list[int]]:
        matched = [token for token in longest if special or not token.special]
        rows = [list(_cut(text, matched)) for text in texts]
        between = [part for row in rows for part in row if isinstance(part, str)]
        encoded = iter(_rows(*plain(*pack_texts(between))))
        parts = [[next(encoded) if isinstance(p, str) else [p] for p in row] for row in rows]
        return [[number for ids in row for number in ids] for row in parts]

    def encode(data: np.ndarray, offsets: np.ndarray) -> Buffers:
        ids, sizes = plain(data, offsets)
        if not np.isin(ids, [token.number for token in added if not token.special]).any():
            return ids, sizes
        rows = parse(texts_of(data, offsets), special=False)
        sizes = np.array([len(row) for row in rows], np.int64)
        return np.array([number for row in rows for number in row], np.uint32), sizes

    return Reading(encode, _decoder(form), added, parse)


def processor_of(form: Pieces) -> Any:
    """Return a sentencepiece.SentencePieceProcessor for a SentencePiece model. Raises CannotHold if
    the library sentencepiece does not accept the pieces."""
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_proto=write_form(form))
    except RuntimeError as error:
        raise CannotHold(f"sentencepiece does not accept its pieces ({error})") from None


def _cut(text: str, tokens: list[Added]) -> Iterator[str | int]:
    token = next((token for token in tokens if token.content in text), None)
    if token is None:
        yield from [text] if text else []
        return
    for number, part in enumerate(text.split(token.content)):
        if number:
            yield token.number
        yield from _cut(part, tokens)


def _decoder(form: Form) -> Callable[[list[list[int]]], list[str]]:
    """Return a function that joins the bytes of tokens, as tiktoken and llama.cpp decode."""
    if isinstance(form, ByteBpe):
        raw = {number: token for token, number in form.tokens.items()}
    else:
        raw = {
            n: bytes([int(text[3:5], 16)]) if kind == BYTE else text.replace(SPACE, " ").encode()
            for n, (text, _, kind) in enumerate(form.pieces)
        }
    raw |= {token.number: token.content.encode() for token in form.added}
    prefix = " " if isinstance(form, Pieces) and form.prefix else ""

    def decode(rows: list[list[int]]) -> list[str]:
        joined = (b"".join([raw[number] for number in ids]) for ids in rows)
        return [text.decode("utf-8", "replace").removeprefix(prefix) for text in joined]

    return decode


def losses(before: Reading, after: Reading) -> dict[str, list[Added]]:
    """Return {flag with value, as in "lstrip=true": the added tokens that lost it}."""
    now = {token.number: token for token in after.added}
    lost: dict[str, list[Added]] = {}
    for token in before.added:
        other = now.get(token.number, token)
        for flag in FLAGS:
            value = getattr(token, flag)
            if value != getattr(other, flag):
                lost.setdefault(f"{flag}={str(value).lower()}", []).append(token)
    return lost


@dataclass
class Comparison:
    """Counts from comparing a tokenizer with its conversion on texts. lost: added tokens that lost
    a flag, such as lstrip; ties: texts that the two tokenizers split differently but equally well
    (SentencePiece adds scores in float32, so rounding decides); scores: the scores of a Unigram's
    tokens, to find ties if one tokenizer is SentencePiece; unknown: the id of unknown characters,
    which every library decodes in its own way; explained: texts with different ids that contain a
    token of `lost`; decoded: texts decoded by both; undecoded: a phrase on the first text that the
    two tokenizers decode differently."""

    lost: Iterable[Added] = ()
    scores: np.ndarray | None = None
    unknown: int = -1
    bytes: int = 0
    ties: int = 0
    explained: int = 0
    decoded: int = 0
    undecoded: str = ""

    def run(
        self, before: Reading, after: Reading, batches: Iterable[Buffers], parsed: bool = False
    ) -> int:
        """Encode texts with both tokenizers, decode the ids, and return the number of texts. If
        `parsed` is True, special tokens are matched too. The ids of a text may differ if the text
        has one of the tokens `lost` (added tokens that lost a flag), or if the ids of both
        tokenizers have the same sum of scores (a tie). Raises CannotHold for the first text with
        any other difference."""
        texts = 0
        for data, offsets in batches:
            rows, new = (
                reading.parse(texts_of(data, offsets))
                if parsed and reading.parse
                else _rows(*reading.encode(data, offsets))
                for reading in (before, after)
            )
            if rows != new:
                triples = zip(texts_of(data, offsets), rows, new, strict=True)
                rows = [was for text, was, now in triples if self._same(text, was, now)]
            rows = [row for row in rows if row and self.unknown not in row]
            if rows and self.decoded < _MOST_DECODED and not self.undecoded:
                pairs = zip(before.decode(rows), after.decode(rows), strict=True)
                if other := next(((a, b) for a, b in pairs if a != b), None):
                    self.undecoded = f"its decoder, which gives {other[0]!r} and not {other[1]!r}"
                self.decoded += len(rows)
            texts += len(offsets) - 1
            self.bytes += int(offsets[-1] - offsets[0])
        return texts

    def _same(self, text: str, was: list[int], now: list[int]) -> bool:
        if was == now:
            return True
        if any(token.content in text for token in self.lost):
            self.explained += 1
            return False
        scores = self.scores
        first, second = (0.0, np.inf) if scores is None else (scores[was].sum(), scores[now].sum())
        if abs(first - second) > _ROUNDING * max(abs(first), 1.0):
            raise _difference(text, was, now)
        self.ties += 1
        return False


def pack_texts(texts: list[str]) -> Buffers:
    raw = [text.encode() for text in texts]
    return pack(raw)


def _rows(ids: np.ndarray, sizes: np.ndarray) -> list[list[int]]:
    flat, ends = ids.tolist(), np.cumsum([0, *sizes.tolist()]).tolist()
    return [flat[a:z] for a, z in pairwise(ends)]


def tried(added: tuple[Added, ...]) -> list[Added]:
    """Return the added tokens to try in texts: all that have a flag (single_word, lstrip, rstrip or
    normalized), and the others, or a random sample of them if they are many."""
    flagged = [t for t in added if t.single_word or t.lstrip or t.rstrip or t.normalized]
    plain = [t for t in added if t not in flagged]
    return flagged + Random(0).sample(plain, min(len(plain), _MOST_ADDED))


def added_texts(tokens: list[Added]) -> Iterator[Buffers]:
    """Yield texts that contain each token, alone and next to letters, spaces, punctuation or other
    tokens; texts with parts of a token; and texts with tokens that overlap."""
    texts: list[str] = []
    begun = {t.content[:k]: t.content for t in tokens for k in range(1, len(t.content))}
    for token, other in zip(tokens, [*tokens[1:], *tokens[:1]], strict=True):
        text = token.content
        texts += [context.format(text, other.content) for context in _CONTEXTS]
        texts += [text[:-1], text[1:], text[:-1] + text]
        ends = [k for k in range(1, len(text)) if text[k:] in begun]
        texts += [text[:k] + begun[text[k:]] for k in ends]
    yield from _batches(texts)


def builtin_batches(form: Form) -> Iterator[Buffers]:
    """Yield batches of test texts: built-in texts, the text of each token in `form` alone and after
    a letter, and texts of pieces with equal scores (`tied_texts`)."""
    raw: Iterable[bytes] = (
        form.tokens
        if isinstance(form, ByteBpe)
        else [text.replace(SPACE, " ").encode() for text, _, kind in form.pieces if kind == NORMAL]
    )
    decoded = ((token, token.decode("utf-8", "ignore")) for token in raw)
    words = [word for token, word in decoded if word.encode() == token]  # not parts of characters
    yield from _batches([*HARD_TEXTS, *SCRIPTS, *(token.content for token in form.added)])
    yield from _batches([text for word in words for text in (word, f"x{word}")])
    yield from _batches(tied_texts(form))


def _batches(texts: list[str]) -> Iterator[Buffers]:
    for first in range(0, len(texts), _ROWS):
        yield pack_texts(texts[first : first + _ROWS])


def tied_texts(form: Form) -> list[str]:
    """Return test texts for pieces that share a score or can overlap a copy of themselves, like
    `aa` in `aaa`. SentencePiece's BPE merges such pieces from left to right. A conversion to a list
    of merges, each with its own rank, cannot always keep this order. Each text is a random sequence
    of pieces with the same score and of the characters in these pieces."""
    if not isinstance(form, Pieces) or form.kind == "unigram":
        return []
    tied: dict[float, list[str]] = {}
    for text, score, kind in form.pieces:
        if kind == NORMAL and len(text) > 1:
            tied.setdefault(score, []).append(text.replace(SPACE, " "))
    draw, texts = Random(0), list[str]()
    for group in tied.values():
        piece = group[0]
        if len(group) > 1 or any(piece.startswith(piece[k:]) for k in range(1, len(piece))):
            parts = [*group, *sorted(set("".join(group)))]
            rounds = range(min(_TIED * len(group), _MOST_TIED))
            texts += ["".join(draw.choices(parts, k=draw.randint(2, 12))) for _ in rounds]
    return texts


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


def _difference(text: str, was: list[int], now: list[int]) -> CannotHold:
    pairs = enumerate(zip_longest(was, now, fillvalue="no token"))
    at, (old, new) = next((k, pair) for k, pair in pairs if pair[0] != pair[1])
    shown = text if len(text) <= 60 else f"{text[:60]}..."
    return CannotHold(
        f"its ids would differ: in {shown!r} token {at} is {old} before and {new} after"
    )


def unigram_scores(form: Form | None) -> np.ndarray | None:
    """Return float64[ids], the scores of a Unigram model; None for other models."""
    if not isinstance(form, Pieces) or form.kind != "unigram":
        return None
    return np.array([score if kind == NORMAL else 0.0 for _, score, kind in form.pieces])
