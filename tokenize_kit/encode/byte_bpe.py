"""Byte-level BPE: read a tokenizer.json or tiktoken's ranks into tables, and encode pieces of text.

A tokenizer must have all 256 bytes in its vocabulary and only patterns that our compiler supports.
For others, Unsupported is raised with the reason, and the `tokenizers` library encodes.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from llmcurate.base.kernels import njit, read_only
from llmcurate.base.kernels.intrinsics import mix_bits
from tokenize_kit.encode.greedy import ID, encode_greedy, make_greedy, no_greedy
from tokenize_kit.encode.normalize import NormalForm
from tokenize_kit.encode.parts import NOTHING_SETTLED, encode_rows
from tokenize_kit.encode.trie import build_trie, token_of
from tokenize_kit.encode.words import (
    INLINE,
    LONGEST,
    CachePool,
    add_word,
    first_slot,
    longest_piece,
    look_up,
    recall,
    seen_before,
    word_key,
)
from tokenize_kit.formats.merges import (
    SHORT,
    STEP,
    Pairs,
    merge_drawn,
    merge_long,
    merge_short,
    pair_table,
)
from tokenize_kit.formats.tiktoken import tables_of
from tokenize_kit.formats.tokenizer_json import (
    LETTERS,
    Model,
    Parts,
    Unsupported,
    from_letters,
    patterns_of,
)
from tokenize_kit.pattern.automaton import Table, compile_pattern
from tokenize_kit.pattern.parse import UnsupportedPattern
from tokenize_kit.pattern.scan import count_final_pieces, cut_rows

# A byte-level BPE. bytes: int64[256]: the id of each byte; pairs: merges.pair_table; greedy:
# greedy.Greedy, used if `orderly`; whole: True if a piece that is a token becomes that token, even
# if merging gives others; slots, token_at: build_trie of tokens that merging does not give.
Bpe = namedtuple("Bpe", "bytes pairs greedy orderly slots token_at whole")
# Buffers for a piece. symbols, ranks: int64[n]; dead: bool[n + 1], all False.
Work = namedtuple("Work", "symbols ranks dead")


@njit(nogil=True)
def _merge_by_rank(byte_ids, pairs, data, a, z, symbols, ranks):
    n = z - a
    for k in range(n):
        symbols[k] = byte_ids[data[a + k]]
    if n <= SHORT:
        return merge_short(pairs, symbols, ranks, n)
    return merge_long(pairs, symbols, n)


@njit(nogil=True)
def _encode_piece(data, a, z, bpe, work):
    if bpe.whole:
        token = token_of(bpe.slots, bpe.token_at, data, a, z)
        if token >= 0:
            work.symbols[0] = token
            return 1
    if bpe.orderly:
        return encode_greedy(bpe.greedy, data, a, z, work.symbols, work.dead)
    return _merge_by_rank(bpe.bytes, bpe.pairs, data, a, z, work.symbols, work.ranks)


@njit(nogil=True)
def _encode_rows(data, offsets, ends, counts, bpe, cache, work, out, sizes):
    w, piece = np.int64(0), 0
    for row in range(len(counts)):
        before = w
        a = np.int64(offsets[row])
        for _ in range(counts[row]):
            z = np.int64(ends[piece])
            piece += 1
            cached = False
            low = high = slot = np.uint64(0)
            kept = z - a <= LONGEST
            if kept:
                low, high = word_key(data, a, z)
                kept = z - a <= INLINE or seen_before(cache.seen, low)
            if kept:
                slot = look_up(cache, first_slot(low, high), low, high, data, a, z - a)
                cached = cache.entries[slot, 1] != 0
            if cached:
                w = recall(cache, slot, z - a, out, w)
            else:
                n = _encode_piece(data, a, z, bpe, work)
                for k in range(n):
                    out[w + k] = work.symbols[k]
                w += n
                if kept:
                    add_word(cache, slot, low, high, data, a, z, work.symbols, n, np.int64(0))
            a = z
        sizes[row] = w - before
    return w


@njit(cache=True, nogil=True)
def encode_pieces(data, offsets, ends, counts, bpe, cache):
    """Encode texts that are split into pieces. Return (ids: uint32[], number of ids per text:
    int64[rows]). ends, counts: the pieces' ends and their number per text, from scan.cut_rows."""
    out = np.empty(offsets[-1] - offsets[0] + 1, np.uint32)
    sizes = np.empty(len(counts), np.int64)
    longest = longest_piece(offsets, ends, counts)
    work = Work(
        np.empty(longest, np.int64), np.empty(longest, np.int64), np.zeros(longest + 1, np.bool_)
    )
    return out[: _encode_rows(data, offsets, ends, counts, bpe, cache, work, out, sizes)], sizes


@njit(cache=True, nogil=True)
def sample_pieces(data, offsets, ends, counts, bpe, keys, rate):
    """Encode as `encode_pieces` does, but skip merges with probability `rate` (BPE dropout,
    Provilkov et al. 2020). keys: uint64[rows], a number for each document. The draws depend only on
    this number and on the position in the text."""
    out = np.empty(offsets[-1] - offsets[0] + 1, np.uint32)
    sizes = np.empty(len(counts), np.int64)
    longest = longest_piece(offsets, ends, counts)
    symbols, states = np.empty(longest, np.int64), np.empty(1, np.uint64)
    waiting, passed = np.empty((2, 3 * longest), np.int64), np.empty((2, 3 * longest), np.int64)
    following, preceding = np.empty(longest, np.int64), np.empty(longest, np.int64)
    w, piece = np.int64(0), 0
    for row in range(len(counts)):
        before, a = w, np.int64(offsets[row])
        for _ in range(counts[row]):
            z = np.int64(ends[piece])
            piece += 1
            states[0] = mix_bits(keys[row] ^ mix_bits(np.uint64(a - offsets[row]) + STEP))
            for k in range(z - a):
                symbols[k] = bpe.bytes[data[a + k]]
            n = merge_drawn(
                bpe.pairs, symbols, z - a, rate, states, waiting, passed, following, preceding
            )
            for k in range(n):
                out[w + k] = symbols[k]
            w += n
            a = z
        sizes[row] = w - before
    return out[:w], sizes


@dataclass(frozen=True)
class Plan:
    """The tables of an encoder. tables: the compiled patterns that split text; bpe: the tables of
    merges; added: tokens matched in the text before it is split; form: the normal form that a text
    must have, such as NFC."""

    tables: tuple[Table, ...]
    bpe: Bpe
    added: tuple[str, ...]
    form: NormalForm | None = None


def _read_model(model: Model) -> Bpe:
    if model.get("type") != "BPE":
        raise Unsupported(f"the model {model.get('type')}")
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(name):
            raise Unsupported(f"the setting {name}")
    vocab: dict[str, int] = model["vocab"]
    if any(letter not in vocab for letter in LETTERS):
        raise Unsupported("a vocabulary without all 256 bytes")
    byte_ids = np.array([vocab[letter] for letter in LETTERS], np.int64)
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    try:
        rows = [(vocab[a], vocab[b], vocab[a + b]) for a, b in merges]
    except (KeyError, ValueError):
        raise Unsupported("a merge of tokens that are not in the vocabulary") from None
    if len({(a, b) for a, b, _ in rows}) != len(rows):
        raise Unsupported("a merge listed twice")
    pairs = pair_table(np.array(rows, np.int64).reshape(-1, 3))
    tokens: dict[int, bytes] = {}
    for word, number in vocab.items():
        try:
            tokens[number] = from_letters(word)
        except KeyError:
            continue  # not spelled in bytes, so no text gives it
    tokens = {number: word for number, word in tokens.items() if word}
    return _tables(tokens, byte_ids, pairs, bool(model.get("ignore_merges")))


def _tables(tokens: dict[int, bytes], byte_ids: np.ndarray, pairs: Pairs, whole: bool) -> Bpe:
    greedy = make_greedy(tokens, byte_ids, pairs)
    if whole and greedy is not None:  # the trie needs only tokens that merging does not give
        merged = set(greedy.tokens[:, ID].tolist())
        tokens = {number: token for number, token in tokens.items() if number not in merged}
    elif not whole:
        tokens = {}
    try:
        slots, token_at = build_trie([*tokens.values()], np.array([*tokens], np.int64))
    except ValueError as error:
        raise Unsupported(str(error)) from None
    return Bpe(byte_ids, pairs, greedy or no_greedy(), greedy is not None, slots, token_at, whole)


def read_plan(parts: Parts) -> Plan:
    """Return the tables of the encoder for a tokenizer.json that `tokenizers` has loaded. Raises
    Unsupported if our kernels cannot encode with this tokenizer."""
    step = parts["normalizer"]
    form: Any = None if step is None else step["type"]
    if form and form not in get_args(NormalForm):
        raise Unsupported(f"the normalizer {form}")
    for token in parts["added_tokens"]:
        if not token["special"] and (token["lstrip"] or token["rstrip"] or token["single_word"]):
            raise Unsupported(
                f"the added token {token['content']!r} strips spaces or matches whole words only"
                " (lstrip, rstrip, single_word)"
            )
    try:
        tables = tuple(compile_pattern(p) for p in patterns_of(parts["pre_tokenizer"]))
    except UnsupportedPattern as error:
        raise Unsupported(str(error)) from None
    if not tables:
        raise Unsupported("no pattern that splits the text")
    added = tuple(t["content"] for t in parts["added_tokens"] if not t["special"])
    if form and added:
        raise Unsupported("added tokens that are not special, together with a normalizer")
    return Plan(tables, _read_model(parts["model"]), added, form)


def plan_of(ranks: dict[bytes, int], pattern: str) -> Plan:
    """Build tables that give tiktoken's ids. ranks: the rank of each token, all 256 bytes included;
    pattern: in tiktoken's syntax. Raises UnsupportedPattern, and Unsupported if the tokens do not
    fit into a table."""
    tokens = {rank: token for token, rank in ranks.items()}
    bpe = _tables(tokens, *tables_of(ranks), whole=True)
    return Plan((compile_pattern(pattern, "rust"),), bpe, ())


class ByteEncoder:
    """An encoder that uses our kernels. Ids do not depend on texts encoded earlier or on how texts
    are batched; threads may share one encoder."""

    def __init__(self, plan: Plan) -> None:
        self.plan: Plan | None = plan
        self._bpe = plan.bpe
        self._caches = CachePool()
        self._tables = tuple(table.kernel for table in plan.tables)

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ids: uint32[], number of ids per row: int64[rows]). data: uint8[], valid UTF-8;
        offsets: int64[rows + 1]."""
        return encode_rows(data, offsets, self._encode, self.encode_settled)

    def encode_settled(self, data: np.ndarray) -> tuple[np.ndarray, int]:
        """Encode the first bytes of a text: those whose ids stay the same whatever text follows.
        Return the ids and the number of these bytes (see parts.EncodeSettled)."""
        data = read_only(data)
        whole = np.array([0, len(data)])
        ends, _ = cut_rows(data, whole, self._tables[:1])
        count = count_final_pieces(data, ends, self._tables[0])
        if not count:
            return NOTHING_SETTLED
        end = int(ends[count - 1])
        if len(self._tables) > 1:
            ends, _ = cut_rows(data, whole, self._tables)
        counts = np.searchsorted(ends, [end], "right")
        return self._encode_pieces(data, np.array([0, end]), ends, counts)[0], end

    def _encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data = read_only(data)
        ends, counts = cut_rows(data, offsets, self._tables)
        return self._encode_pieces(data, offsets, ends, counts)

    def _encode_pieces(
        self, data: np.ndarray, offsets: np.ndarray, ends: np.ndarray, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._caches.run(encode_pieces, data, offsets, ends, counts, self._bpe)

    def sample(
        self, data: np.ndarray, offsets: np.ndarray, keys: np.ndarray, rate: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode as `encode` does, but skip each merge with probability `rate`. Draws depend on
        `keys`: uint64[rows]. As in the `tokenizers` library, even a word that is itself a token is
        merged step by step, except at rate 0."""
        if not rate:
            return self.encode(data, offsets)
        data = read_only(data)
        ends, counts = cut_rows(data, offsets, self._tables)
        return sample_pieces(data, offsets, ends, counts, self._bpe, keys, rate)
