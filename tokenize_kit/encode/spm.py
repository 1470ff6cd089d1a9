"""SentencePiece's model files encoded by our kernels, with the ids of sentencepiece 0.2.3.

Unigram and BPE models are supported, with any precompiled normalizer, user-defined symbols and byte
fallback. The sentencepiece library encodes all other models, such as word and character models, BPE
models with unused pieces, and models that do not write spaces as U+2581; SpmEncoder.reason names
the unsupported feature.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from llmcurate.base.kernels import read_only
from tokenize_kit.encode.char_bpe import Merges, encode_characters, make_char_bpe, make_symbols
from tokenize_kit.encode.normalize import Normalizer, make_normalizer, normalize_rows, read_charsmap
from tokenize_kit.encode.parts import NOTHING_SETTLED, Encode
from tokenize_kit.encode.unigram import PENALTY, encode_unigram, make_unigram
from tokenize_kit.encode.words import CachePool, Fallback, byte_fallback, crossings
from tokenize_kit.formats.forms import BYTE, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Pieces
from tokenize_kit.formats.sentencepiece_model import NotAModel, pieces_of, read_model
from tokenize_kit.formats.tokenizer_json import Unsupported

# SentencePiece's BPE as merges over characters: neighbours that spell a piece merge, the highest
# score first, the leftmost in a tie. User-defined symbols are matched first (src/bpe_model.cc,
# 0.2.3). The library encodes models with unused pieces, whose parts are output instead.


def merges_of(model: Pieces) -> Merges:
    """Return the merges of a BPE model. Raises Unsupported if a score is not a number, or if there
    are unused pieces."""
    if pieces_of(model, (UNUSED,)):
        raise Unsupported("unused pieces")
    ids = pieces_of(model, (NORMAL,))
    scores = np.array([score for _, score, _ in model.pieces], np.float32)
    if np.any(np.isnan(scores)):
        raise Unsupported("a score that is not a number")
    scores += np.float32(0)  # turns -0.0 into 0.0
    tokens = sorted((t for t in ids if len(t) > 1), key=lambda t: -scores[ids[t]])
    parts = set("".join(ids)) | ids.keys()
    ranks = np.unique(-scores, return_inverse=True)[1].tolist()
    rows = [
        (left, right, token, ranks[ids[token]])
        for token in tokens
        for cut in range(1, len(token))
        if (left := token[:cut]) in parts and (right := token[cut:]) in parts
    ]
    return Merges(tokens, rows, ids)


_GRAIN = 64  # sums of multiples of 1/64 have no rounding errors below RESET
_MOST_NESTED = 64  # user-defined symbols that begin with one another; the library's limit


class SpmEncoder:
    """An encoder with the ids of the sentencepiece library. reason: why the library encodes and our
    kernels cannot, or None if our kernels encode. Threads may share the encoder only if `reason` is
    None. The encoder cannot encode a text in parts, nor choose ids at random."""

    can_settle, encode_settled = False, staticmethod(lambda data: NOTHING_SETTLED)

    def __init__(self, raw: bytes, library: Any) -> None:
        """Read a model file. raw: its bytes; library: a SentencePieceProcessor of the same file."""
        self.library, self._by_library = library, by_library(library)
        self.reason: str | None = None
        self.unknown: int = library.unk_id()
        try:
            model = read_model(raw)
            self._normalizer = _normalizer(model)
            self._encode = _kernel(model)
        except (Unsupported, NotAModel, ValueError) as error:
            self.reason = str(error)

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ids: uint32[], number of ids per row: int64[rows]). data: uint8[], valid UTF-8;
        offsets: int64[rows + 1]."""
        if self.reason is None:
            data, offsets = normalize_rows(read_only(data), offsets, self._normalizer)
            return self._encode(read_only(data), offsets)
        return self._by_library(data, offsets)

    def count_unknown(self, data: np.ndarray, ids: np.ndarray) -> int:
        """Return how many ids are the unknown token."""
        return int(np.count_nonzero(ids == self.unknown))


def by_library(library: Any) -> Encode:
    """Return an encoder of UTF-8 texts that calls a sentencepiece.SentencePieceProcessor."""

    def encode(data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        texts = [data[a:z].tobytes().decode("utf-8") for a, z in pairwise(offsets.tolist())]
        ids_of_rows = library.Encode(texts, num_threads=1)
        parts = [np.array(ids, np.uint32) for ids in ids_of_rows]
        counts = np.array([len(ids) for ids in ids_of_rows], np.int64)
        return np.concatenate([np.empty(0, np.uint32), *parts]), counts

    return encode


def _normalizer(model: Pieces) -> Normalizer:
    if not model.escaped:
        raise Unsupported("spaces that are not escaped")
    symbols = [text for text, _, kind in model.pieces if kind == USER_DEFINED]
    if _nested(symbols) > _MOST_NESTED:
        raise Unsupported(f"more than {_MOST_NESTED} symbols that begin with one another")
    return make_normalizer(
        read_charsmap(model.charsmap),
        [symbol.encode() for symbol in symbols],
        prefix=model.prefix and not model.suffix,
        suffix=model.prefix and model.suffix,
        squeeze=model.squeeze,
    )


def _nested(symbols: list[str]) -> int:
    """Return the length of the longest chain of symbols that each begin with the one before."""
    most, chain = 0, list[str]()
    for symbol in sorted(symbols):
        while chain and not symbol.startswith(chain[-1]):
            chain.pop()
        chain.append(symbol)
        most = max(most, len(chain))
    return most


def _kernel(model: Pieces) -> Encode:
    unknown = [k for k, (_, _, kind) in enumerate(model.pieces) if kind == UNKNOWN]
    if len(unknown) != 1:
        raise Unsupported("a model without an unknown piece")
    if any("\0" in text or not text for text, _, _ in model.pieces):
        raise Unsupported("a piece that is empty or contains NUL")
    byte_ids = np.empty(0, np.int64)
    if model.byte_fallback:
        pieces = enumerate(model.pieces)
        byte_ids = byte_fallback({text: k for k, (text, _, kind) in pieces if kind == BYTE})
    fallback = Fallback(unknown[0], byte_ids, True)
    if model.kind == "unigram":
        return _unigram(model, fallback)
    if model.kind == "bpe":
        return _bpe(model, fallback)
    raise Unsupported("a model of words or characters")


def _bpe(model: Pieces, fallback: Fallback) -> Encode:
    # User-defined symbols, as spelled in normalized text, and their ids.
    symbols = {text.encode(): k for text, k in pieces_of(model, (USER_DEFINED,)).items()}
    merges = merges_of(model)
    bpe, symbol_table = make_char_bpe(merges), make_symbols(symbols)
    borders = crossings([*merges.tokens, *(symbol.decode() for symbol in symbols)])
    width = 1 if " " in merges.ids or not len(fallback.bytes) else 3
    return _with_tables(encode_characters, bpe, symbol_table, fallback, borders, width)


def _unigram(model: Pieces, fallback: Fallback) -> Encode:
    pieces = pieces_of(model, (NORMAL, USER_DEFINED))
    rounded = np.array([score for _, score, _ in model.pieces], np.float32)
    if not np.all(np.isfinite(rounded)):
        raise Unsupported("a score that is not a number")
    normal = [k for k, (_, _, kind) in enumerate(model.pieces) if kind == NORMAL]
    least = min((rounded[k] for k in normal), default=np.finfo(np.float32).max)
    lacking = np.float32(least) - np.float32(PENALTY)
    for k, (text, _, kind) in enumerate(model.pieces):
        if kind == USER_DEFINED:  # by its bytes, as in GetUserDefinedScore
            rounded[k] = np.float32(0.1 * (len(text.encode()) - 1))
    sums = rounded.copy()
    sums[fallback.unknown] = lacking
    if len(fallback.bytes):
        sums[fallback.bytes] = 0
        begins = [byte for byte in range(256) if byte >> 6 != 2]
        sums[fallback.bytes[begins]] = lacking
    used = [*pieces.values()]
    grains = np.append(rounded[used], lacking).astype(np.float64) * _GRAIN
    unigram = make_unigram(
        pieces, rounded.astype(np.float64), sums, float(lacking), rounds=True, exact=False
    )
    exact = bool(np.all(grains == np.round(grains))) and unigram.worst < 1000
    unigram = unigram._replace(exact=exact)
    borders = crossings(pieces)
    width = 1 if " " in pieces or not len(fallback.bytes) else 3
    return _with_tables(encode_unigram, unigram, fallback, borders, width)


def _with_tables(kernel: Callable[..., Any], *tables: Any) -> Encode:
    caches = CachePool()
    return lambda data, offsets: caches.run(kernel, data, offsets, *tables)
