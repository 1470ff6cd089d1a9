"""Extend a byte-level or character BPE with new tokens and merges.

Texts are encoded by the old merges; then pairs of the resulting ids are counted and merged as in
training. All new merges come after the old ones, so the new tokenizer first encodes a text as
before and then merges further.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from tokenizers import Tokenizer

from llmcurate.base.kernels import read_only
from llmcurate.base.roles import Roles
from tokenize_kit.change.verify import Buffers, pack_texts
from tokenize_kit.encode.byte_bpe import Plan, encode_pieces
from tokenize_kit.encode.words import new_cache
from tokenize_kit.formats.forms import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNUSED,
    Added,
    ByteBpe,
    CannotHold,
    Pieces,
)
from tokenize_kit.formats.json_forms import added_of
from tokenize_kit.formats.tokenizer_json import Parts
from tokenize_kit.learn.bpe import CharacterWords, choose_characters, number_words
from tokenize_kit.learn.bpe_merges import LEAST, LONGEST, learn
from tokenize_kit.learn.words import WordCounts, lay_out

# Merges may spell a token that exists already, so this many more are learned.
_EXTRA_TOKENS = 16
Merges = list[tuple[bytes, bytes]]
Text = TypeVar("Text", bytes, str)


def pieces_of(plan: Plan, letters: np.ndarray, ends: np.ndarray) -> Buffers:
    """Encode pieces of text. Return (ids: uint32[], number of ids per piece: int64[pieces]).
    letters: uint8[], the pieces, concatenated; ends: int64[pieces + 1], their bounds."""
    ones = np.ones(len(ends) - 1, np.int64)
    return encode_pieces(read_only(letters), ends, ends[1:].copy(), ones, plan.bpe, new_cache())


def learn_byte_tokens(
    form: ByteBpe, plan: Plan, batches: Iterable[Buffers], tokens: int, least: int = LEAST
) -> tuple[list[bytes], Merges]:
    """Learn up to `tokens` new tokens from texts, given as batches. Return (new tokens, new
    merges), both in the order of learning; the first new token has the id form.size. Pairs that
    occur less than `least` times in the texts are not merged. The result does not depend on the
    order of texts. No new token is spelled like an added token of the old tokenizer."""
    counted = WordCounts(plan.tables)
    for data, offsets in batches:
        counted.add(data, offsets)
    letters, ends, counts = counted.words()
    ids, sizes = pieces_of(plan, letters, ends)
    banned, lengths = _encoded(plan, [token.content for token in form.added])
    text = lay_out(ids.astype(np.int32), np.append(0, np.cumsum(sizes)), counts)
    learned = learn(
        text, form.size, form.size + tokens + tokens // 8 + _EXTRA_TOKENS, least, LONGEST,
        banned.astype(np.int32), np.cumsum(np.append(0, lengths)),
    )  # fmt: skip
    never = {token.content.encode() for token in form.added}
    return spell_merges(form.tokens, set(form.merges), never, learned, tokens)


def _encoded(plan: Plan, texts: list[str]) -> Buffers:
    data, offsets = pack_texts(texts)
    return pieces_of(plan, data, offsets)


def spell_merges(
    old: Mapping[Text, int],
    taken: set[tuple[Text, Text]],
    never: Collection[Text],
    learned: np.ndarray,
    tokens: int,
) -> tuple[list[Text], list[tuple[Text, Text]]]:
    """Convert learned merges from ids to text. Return (new tokens, new merges), both without
    repetitions. old: the ids of the old tokens; taken: the set of old merges, which gets the new
    merges too; never: texts that no token may have; learned: the result of bpe_merges.learn, rows
    of (left id, right id, merged id); tokens: the largest number of new tokens."""
    spelled = {number: token for token, number in old.items()}
    spellings = set(old)
    new: list[Text] = []
    merges: list[tuple[Text, Text]] = []
    for left, right, token_id in learned.tolist():
        if left not in spelled or right not in spelled:
            continue  # a part was not allowed as a token
        pair = spelled[left], spelled[right]
        token = pair[0] + pair[1]
        if token in never:
            continue
        if token not in spellings:
            if len(new) == tokens:
                break
            spellings.add(token)
            new.append(token)
        spelled[token_id] = token
        if pair not in taken:
            taken.add(pair)
            merges.append(pair)
    return new, merges


_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_NONE = -1  # the word number of an id outside all words
# text -> (ids: int64[], the number of each id's word: int64[])
Words = Callable[[str], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class CharBpe:
    """A BPE of characters. tokens: the ids of single characters and of merged tokens, by the
    token's text as the file spells it. merges: pairs of tokens in order of rank; for a
    SentencePiece model, which has no list of merges, all pairs that spell a token. others: the
    texts of byte, special, unknown and user-defined tokens, by id."""

    tokens: dict[str, int]
    merges: tuple[tuple[str, str], ...]
    others: dict[int, str]
    added: tuple[Added, ...]
    byte_fallback: bool
    unknown: int | None
    roles: Roles = field(default_factory=Roles)

    @property
    def size(self) -> int:
        """The highest id plus one."""
        return max([*self.tokens.values(), *self.others]) + 1

    @property
    def special(self) -> dict[str, int]:
        return {token.content: token.number for token in self.added if token.special}

    @property
    def starts_words(self) -> bool:
        """True if tokens have spaces (U+2581) only at the start, so that none spans two words."""
        return not any(SPACE in text.lstrip(SPACE) for text in self.tokens)


def char_bpe_from_json(parts: Parts) -> CharBpe:
    """Return the CharBpe of a tokenizer.json with a BPE of characters. Raises CannotHold."""
    model = parts["model"]
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise CannotHold(f"its model has the setting {name}")
    fallback = bool(model.get("byte_fallback"))
    added = added_of(parts)
    others = {token.number: token.content for token in added}
    outside = {*others.values(), model.get("unk_token")}
    tokens = {}
    for text, number in model["vocab"].items():
        if text in outside or (fallback and _BYTE.fullmatch(text)):
            others[number] = text
        else:
            tokens[text] = number
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    unknown = model["vocab"].get(model.get("unk_token"))
    merges = tuple((left, right) for left, right in pairs)
    return CharBpe(tokens, merges, others, added, fallback, unknown)


def char_bpe_from_pieces(form: Pieces) -> CharBpe:
    """Return the CharBpe of a SentencePiece BPE model. Raises CannotHold."""
    if any(kind == UNUSED for _, _, kind in form.pieces):
        raise CannotHold("it has unused pieces, which SentencePiece's BPE replaces by their parts")
    tokens = {text: n for n, (text, _, kind) in enumerate(form.pieces) if kind == NORMAL}
    ranked = sorted(tokens, key=lambda text: (-form.pieces[tokens[text]][1], tokens[text]))
    merges = [
        (text[:k], text[k:])
        for text in ranked
        for k in range(1, len(text))
        if (k == 1 or text[:k] in tokens) and (k == len(text) - 1 or text[k:] in tokens)
    ]
    others = {n: text for n, (text, _, kind) in enumerate(form.pieces) if kind != NORMAL}
    added = tuple(
        Added(text, n, kind == CONTROL)
        for n, (text, _, kind) in enumerate(form.pieces)
        if kind not in (NORMAL, BYTE)
    )
    return CharBpe(tokens, tuple(merges), others, added, form.byte_fallback, form.unknown)


def words_by_tokenizers(form: CharBpe, tokenizer: Tokenizer) -> Words:
    """Return a function that encodes a text with the `tokenizers` library and returns (ids, word
    number of each id). Each of the library's words is split further before spaces."""

    def words(text: str) -> tuple[np.ndarray, np.ndarray]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        of_word = [_NONE if number is None else number for number in encoding.word_ids]
        ids = np.array(encoding.ids, np.int64)
        return ids, np.array(of_word, np.int64) * len(ids) + at_spaces(ids)

    at_spaces = _at_spaces(form)
    return words


def words_by_sentencepiece(form: CharBpe, raw: bytes) -> Words:
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_proto=raw)

    def words(text: str) -> tuple[np.ndarray, np.ndarray]:
        ids = np.array(library.encode(text), np.int64)
        return ids, at_spaces(ids)

    at_spaces = _at_spaces(form)
    return words


def _at_spaces(form: CharBpe) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from ids to word numbers. Words begin at spaces (U+2581) that do not follow
    another space. If some token has a space after another character, all is one word."""
    begins, ends = np.zeros(form.size, np.bool_), np.zeros(form.size, np.bool_)
    for text, number in form.tokens.items() if form.starts_words else ():
        begins[number], ends[number] = text.startswith(SPACE), text.endswith(SPACE)

    def at_spaces(ids: np.ndarray) -> np.ndarray:
        new = begins[ids]
        new[1:] &= ~ends[ids[:-1]]
        return np.cumsum(new)

    return at_spaces


def learn_character_tokens(
    form: CharBpe, words: Words, texts: Iterable[str], tokens: int, least: int = LEAST
) -> tuple[list[str], list[tuple[str, str]], list[list[int]]]:
    """Return (new tokens, new merges, the old ids of each new token) in the order of the new ids;
    the first token's id is form.size.

    First, as in training, characters that the old tokenizer spells in bytes become tokens: those
    seen at least `least` times, the most common first, until nearly all occurrences of such
    characters are covered or half of the new tokens are used. Then texts are encoded by the old
    merges and pairs of ids are merged as in training; bytes and unknown tokens are not merged. At
    most `tokens` tokens are new. The result does not depend on the order of texts. No new token has
    the text of a special or byte token."""
    letters = _Letters(form)
    ordinary = np.zeros(form.size, np.bool_)
    ordinary[list(form.tokens.values())] = True
    counted: Counter[bytes] = Counter()
    for text in texts:
        ids, of_word = letters.read(*words(text))
        usable = ids >= form.size
        usable[~usable] = ordinary[ids[~usable]]
        cut = np.flatnonzero((np.diff(of_word) != 0) | ~usable[1:] | ~usable[:-1]) + 1
        for part in np.split(ids.astype(np.int32), cut):
            if len(part) > 1:
                counted[part.tobytes()] += 1
    never = set(form.others.values())
    first = letters.chosen(least, tokens)
    old = form.tokens | {letter: form.size + k for k, letter in enumerate(first)}
    ordered = sorted(counted.items())  # independent of the order of texts
    joined = np.frombuffer(b"".join(word for word, _ in ordered), np.uint32)
    ends = np.cumsum([0, *(len(word) // 4 for word, _ in ordered)])
    characters = CharacterWords(joined, ends, np.array([count for _, count in ordered], np.int64))
    # An old id keeps its number; the symbol of a character is form.size plus its code point.
    symbols = [*range(form.size), *(form.size + ord(letter) for letter in first)]
    numbered = number_words(characters, symbols)
    laid = lay_out(numbered.symbols, np.append(0, np.cumsum(numbered.sizes)), numbered.counts)
    spelled = [words(text)[0] for text in sorted(never) if text]
    banned = [ids.tolist() for ids in spelled if len(ids) and ordinary[ids].all()]
    bases, more = form.size + len(first), tokens - len(first)
    learned = learn(
        laid, bases, bases + more + more // 8 + 16, least, LONGEST,
        np.array([n for numbers in banned for n in numbers], np.int32),
        np.cumsum([0, *map(len, banned)]),
    )  # fmt: skip
    new, merges = spell_merges(old, set(form.merges), never, learned, more)
    parts = {text: [number] for text, number in form.tokens.items()}
    parts |= {letter: letters.bytes_of(letter) for letter in first}
    for left, right in merges:
        parts.setdefault(left + right, [*parts[left], *parts[right]])
    return [*first, *new], merges, [parts[token] for token in [*first, *new]]


class _Letters:
    """The characters that a tokenizer spells as byte tokens, and how often they occur. Each gets a
    symbol: the number `form.size` plus the code point."""

    def __init__(self, form: CharBpe) -> None:
        self.size = form.size
        self.counts: Counter[str] = Counter()
        self._byte = np.full(form.size, -1, np.int16)
        for number, text in form.others.items() if form.byte_fallback else ():
            if _BYTE.fullmatch(text):
                self._byte[number] = int(text[3:5], 16)
        self._ids = {int(byte): number for number, byte in enumerate(self._byte) if byte >= 0}

    def read(self, ids: np.ndarray, of_word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Replace the byte tokens of each character by the character's symbol. Return the new ids
        and, for each, the number of its word. `of_word` has the word number of each old id."""
        values = self._byte[ids]
        spelled = np.flatnonzero(values >= 0)
        if not len(spelled):
            return ids, of_word
        parts, words, at = [], [], 0
        for run in np.split(spelled, np.flatnonzero(np.diff(spelled) != 1) + 1):
            try:
                text = values[run].astype(np.uint8).tobytes().decode("utf-8")
            except UnicodeDecodeError:
                continue  # not produced by text
            self.counts.update(text)
            heads = run[(values[run] & 0xC0) != 0x80]
            parts += [ids[at : run[0]], np.frombuffer(text.encode("utf-32-le"), "<u4") + self.size]
            words += [np.arange(at, run[0]), heads]
            at = int(run[-1]) + 1
        parts.append(ids[at:])
        words.append(np.arange(at, len(ids)))
        return np.concatenate(parts).astype(np.int64), of_word[np.concatenate(words)]

    def chosen(self, least: int, tokens: int) -> list[str]:
        """Return the characters that become tokens, by code point: the most common printable ones,
        no spaces, that occur `least` times or more. At most half of `tokens` tokens are
        characters."""
        usable = (c for c, n in self.counts.items() if n >= least and c.isprintable())
        counts = Counter({c: self.counts[c] for c in usable if not c.isspace()})
        return sorted(choose_characters(counts, tokens)[0])

    def bytes_of(self, letter: str) -> list[int]:
        return [self._ids[byte] for byte in letter.encode()]
