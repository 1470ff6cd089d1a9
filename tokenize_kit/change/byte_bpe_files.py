"""Byte-level BPE in a tokenizer.json and in tiktoken's ranks."""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from tokenize_kit.change.forms import Added, ByteBpe, CannotHold
from tokenize_kit.encode.load import spelled, unspelled
from tokenize_kit.encode.ranks import read_ranks, special_of
from tokenize_kit.encode.reading import NotOurs, patterns_of
from tokenize_kit.pattern.automaton import Table, compile_pattern
from tokenize_kit.pattern.named import PATTERNS, chosen
from tokenize_kit.pattern.parse import UnsupportedPattern


def is_byte_bpe(parts: dict[str, Any]) -> bool:
    """Whether a tokenizer.json spells its text in the letters of bytes."""
    return parts["model"].get("type") == "BPE" and "ByteLevel" in json.dumps(parts["pre_tokenizer"])


def normalizers_of(parts: dict[str, Any]) -> list[str]:
    """The kinds of normalisers of a tokenizer.json, one after the other."""

    def kinds(step: dict[str, Any] | None) -> list[str]:
        if step is None:
            return []
        if step["type"] == "Sequence":
            return [kind for inner in step["normalizers"] for kind in kinds(inner)]
        return [step["type"]]

    return kinds(parts.get("normalizer"))


def from_json(parts: dict[str, Any]) -> ByteBpe:
    """Of a tokenizer.json that `tokenizers` has read; CannotHold names what is no part of the form.

    A post-processor is left out: it puts tokens around text and changes none of it.
    """
    model = parts["model"]
    if kinds := normalizers_of(parts):
        raise CannotHold(f"it normalises text ({', '.join(kinds)})")
    for name in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise CannotHold(f"its model has the setting {name}")
    try:
        patterns = patterns_of(parts["pre_tokenizer"])
    except NotOurs as error:
        raise CannotHold(f"it cuts text in a way that no other file holds: {error}") from None
    added = tuple(Added(t["content"], t["id"], t["special"]) for t in parts["added_tokens"])
    apart = {token.number for token in added}
    try:
        tokens = {unspelled(w): n for w, n in model["vocab"].items() if n not in apart}
        pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
        merges = tuple((unspelled(left), unspelled(right)) for left, right in pairs)
    except KeyError as error:
        raise CannotHold(f"a token has the letter {error}, which is none of a byte") from None
    if any(bytes([byte]) not in tokens for byte in range(256)):
        raise CannotHold("its vocabulary does not have all 256 bytes")
    if any(a + b not in tokens for a, b in merges):
        raise CannotHold("a merge makes a token that is special or not in the vocabulary")
    return ByteBpe(tokens, merges, tuple(patterns), added, bool(model.get("ignore_merges")))


def to_tokenizer(form: ByteBpe) -> Tokenizer:
    """As a tokenizer of `tokenizers`; ids are the form's, gaps and all."""
    vocab = {spelled(token): number for token, number in form.tokens.items()}
    clash = [a.content for a in form.added if a.content in vocab]
    if clash:
        raise CannotHold(f"the special token {clash[0]!r} is spelled as an ordinary one is")
    vocab |= {token.content: token.number for token in form.added}
    merges = [(spelled(left), spelled(right)) for left, right in form.merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=form.whole))
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in form.parts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    add_tokens(tokenizer, form.added)
    return tokenizer


def add_tokens(tokenizer: Tokenizer, added: tuple[Added, ...]) -> None:
    """Tokens of the vocabulary that are looked for in the text, in order of their ids."""
    tokenizer.add_tokens(
        [
            AddedToken(token.content, special=token.special, normalized=False)
            for token in sorted(added, key=lambda token: token.number)
        ]
    )


@lru_cache
def _table(part: str) -> Table | None:
    try:
        return compile_pattern(part)
    except UnsupportedPattern:
        return None


def cut_alike(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether patterns cut every text alike, however they are written: their tables are equal."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if a != b:
            first, second = _table(a), _table(b)
            if first is None or second is None:
                return False
            tables = zip(first.kernel, second.kernel, strict=True)
            if not all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in tables):
                return False
    return True


def pattern_name(parts: tuple[str, ...]) -> str | None:
    """The name of published patterns, as Oniguruma or as Rust's regex reads them."""
    for name, pattern in PATTERNS.items():
        if parts == pattern.parts or cut_alike(parts, chosen(name, pattern.digits).parts):
            return name
    return None


def from_ranks(raw: bytes, pattern: str) -> ByteBpe:
    """Of tiktoken's ranks; pattern: one of ranks.NAMES.

    A token's merge is of the two parts that lower ranks make of it. One of which they make more is
    had from a piece of text that is the token, and by no merge. Raises ValueError for other files.
    """
    ranks = read_ranks(raw)
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1 and len(parts := _merged(ranks, token, rank)) == 2:
            merges.append((parts[0], parts[1]))
    special = special_of(pattern, max(ranks.values()))
    added = tuple(Added(name, number, True) for name, number in special.items())
    cut = chosen(pattern, PATTERNS[pattern].digits).parts
    return ByteBpe(ranks, tuple(merges), cut, added, True)


def _merged(ranks: dict[bytes, int], token: bytes, below: int) -> list[bytes]:
    """What merges of ranks below a number make of a token, the lowest first."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 1:
        found = [ranks.get(a + b, below) for a, b in pairwise(parts)]
        least = min(found)
        if least >= below:
            break
        at = found.index(least)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def to_ranks(form: ByteBpe) -> bytes:
    """As a file of ranks; CannotHold where merging by rank of the result is something else."""
    if len(form.parts) != 1:
        raise CannotHold(
            f"tiktoken cuts text by one pattern, this tokenizer by {len(form.parts)}"
            " one after the other"
        )
    if any(not token.special for token in form.added):
        raise CannotHold("tiktoken has no added tokens other than special ones")
    made = [form.tokens[a + b] for a, b in form.merges]
    if made != sorted(made):
        raise CannotHold("its merges are not given by ranks: their order is not that of the ids")
    parts = {a + b: [a, b] for a, b in reversed(form.merges)}
    for token, rank in form.tokens.items():
        if len(token) == 1 or (form.whole and token not in parts):
            continue
        if _merged(form.tokens, token, rank) != parts.get(token):
            shown = token.decode("utf-8", "backslashreplace")
            raise CannotHold(
                f"its merges are not given by ranks: tiktoken makes {shown!r} of other parts"
            )
    lines = [
        base64.b64encode(token) + f" {rank}\n".encode()
        for token, rank in sorted(form.tokens.items(), key=lambda item: item[1])
    ]
    return b"".join(lines)
