"""Open a tokenizer file of any kind for the encoding of shards.

tokenizer.json    our kernels if possible, otherwise `tokenizers`; the same for tekken.json
*.model           SentencePiece: our kernels if possible, otherwise its library
*.tiktoken        tiktoken's ranks, by our kernels; the file does not contain its pattern
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from llmcurate.base.errors import UsageError
from llmcurate.base.roles import SPELLING, Roles, read_roles, spelled_roles, with_tokens
from llmcurate.base.tokenizer_file import (
    read_file,
    roles_of,
    size_of,
    special_ids,
    switch_off_dropout,
)
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import Encode
from tokenize_kit.encode.spm import SpmEncoder
from tokenize_kit.formats.json_forms import byte_bpe_tokenizer
from tokenize_kit.formats.tekken import is_tekken, load_json
from tokenize_kit.formats.tiktoken import PATTERN_NAMES, from_ranks, is_ranks, listed_special

# Like Encode, with two more arguments: the rows' keys, uint64[rows], and a rate.
Sample = Callable[[np.ndarray, np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer that encodes shards. file: the name of the tokenizer's copy beside the shards.
    ids: the id of each token by its spelling. special: the ids of special tokens. roles: the
    special tokens by role. forbidden: bool[size], True for ids that text must never give. encode,
    sample: methods of `encoder`. begin, end: the ids that begin and end documents. dropout: the
    rate of BPE dropout in the file, which `encode` ignores. converted: the tokenizer.json to use as
    the copy (bytes) if the file has another format, else None."""

    path: Path
    file: str
    ids: Mapping[str, int]
    special: dict[str, int]
    roles: Roles
    forbidden: np.ndarray
    encoder: Encoder | SpmEncoder
    encode: Encode
    sample: Sample | None = None
    begin: int | None = None
    end: int | None = None
    dropout: float = 0.0
    converted: bytes | None = None

    def sampled(self, rate: float) -> Sample:
        """Return the encoder that draws ids at random. Raises ``LlmcurateError`` if the model
        cannot draw ids or the rate is out of range."""
        if self.sample is None:
            raise UsageError(
                f"{self.path}: sampling works for byte-level BPE that our kernels encode; leave"
                " sampling out"
            )
        if not 0 <= rate <= 1:
            raise UsageError(f"sampling {rate:g}: give a rate from 0 to 1")
        return self.sample

    @property
    def size(self) -> int:
        """The highest id plus one."""
        return len(self.forbidden)

    def with_edges(
        self, begins: bool | None, ends: bool, begin: str | None, end: str | None
    ) -> tuple[Vocabulary, list[str]]:
        """Return (the vocabulary with its `begin` and `end` set, messages on tokens chosen by
        default). begins, ends: True to put a token at the beginning or end of each document.
        begins=None: True if `begin` is given or the tokenizer puts a token before a text. begin,
        end: tokens to use instead of the tokenizer's. Raises ``UsageError`` for unknown tokens."""
        roles = with_tokens(self.roles, self.ids, begin=begin, end=end)
        # If one token both begins and ends documents, the document before already ends in it.
        usual = roles.before == (roles.begin,) and roles.begin not in roles.ends
        puts = (usual or begin is not None) if begins is None else begins
        edges: dict[str, Any] = {"begin": roles.begin, "end": roles.end}
        lines = []
        names = {number: name for name, number in self.ids.items() if number in edges.values()}
        for role, option, put in (("begin", "bos", puts), ("end", "eos", ends)):
            number, source = edges[role], roles.origin.get("ends" if role == "end" else role)
            called = "beginning" if role == "begin" else role
            if not put:
                edges[role] = None
            elif number is None:
                raise UsageError(
                    f"{self.path}: no {called}-of-text token is known: name it (--{option}-token),"
                    f" or encode without it (--no-{option})"
                )
            elif source == SPELLING:
                why = f"known by its spelling; --{option}-token names another"
                if self.file.endswith(".tiktoken"):
                    why = f"id {number}, added: the file lists no special tokens, nor does a card"
                lines.append(f"{names[number]} {role}s each document ({why})")
            elif role == "begin" and begins is None and begin is None:
                why = "as the tokenizer puts it before a text; --no-bos leaves it out"
                lines.append(f"{names[number]} begins each document ({why})")
        return replace(self, roles=roles, **edges), lines


def open_vocabulary(path: Path, pattern: str | None = None) -> Vocabulary:
    """Open a tokenizer file. pattern: the name of a published pattern, for .tiktoken files. Raises
    ``LlmcurateError`` naming the file."""
    if is_ranks(path):
        tokenizer = load_ranks(path, pattern)
        vocabulary = _library(path, tokenizer, "tokenizer.tiktoken")
        if listed_special(path) is None:
            return vocabulary
        # A copy elsewhere would lack the card with the special tokens.
        converted = tokenizer.to_str().encode()
        return replace(vocabulary, file="tokenizer.json", converted=converted)
    if pattern is not None:
        raise UsageError(f"{path}: a pattern is for .tiktoken files; leave it out")
    if path.suffix == ".model":
        return _pieces(path)
    return _library(path, load_json(path, dropout=True), "tokenizer.json")


def _marked(size: int, ids: list[int]) -> np.ndarray:
    marked = np.zeros(size, np.bool_)
    marked[ids] = True
    return marked


def _library(path: Path, tokenizer: Tokenizer, file: str) -> Vocabulary:
    dropout = switch_off_dropout(tokenizer)
    ids = tokenizer.get_vocab(with_added_tokens=True)
    special = special_ids(tokenizer)
    encoder = Encoder(tokenizer)
    tekken = file == "tokenizer.json" and is_tekken(path)  # its format fixes the spellings
    own = replace(spelled_roles(special), origin={}) if tekken else None
    roles = roles_of(path, tokenizer, own)
    # Text may give the unknown token, but no other special token.
    forged = [n for n in special.values() if n != encoder.unknown or n in roles.ends]
    return Vocabulary(
        path,
        file,
        ids,
        special,
        roles,
        _marked(size_of(tokenizer), forged),
        encoder,
        encoder.encode,
        encoder.sample if encoder.plan else None,
        dropout=dropout,
        converted=tokenizer.to_str().encode() if tekken else None,
    )


def load_ranks(path: Path, pattern: str | None) -> Tokenizer:
    """Load a .tiktoken file with `tokenizers`. Raises ``LlmcurateError`` naming the file."""
    if pattern not in PATTERN_NAMES:
        names = ", ".join(PATTERN_NAMES)
        raise UsageError(
            f"{path}: a .tiktoken file does not contain its pattern: give --pattern, one of {names}"
        )
    try:
        tokenizer = byte_bpe_tokenizer(from_ranks(read_file(path), pattern, listed_special(path)))
    except ValueError as error:
        raise UsageError(f"{path}: not a .tiktoken file: {error}") from None
    tokenizer.encode_special_tokens = True
    return tokenizer


def _pieces(path: Path) -> Vocabulary:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    raw = read_file(path)
    try:
        processor.LoadFromSerializedProto(raw)
        size = processor.GetPieceSize()
        # Of pieces with the same text, the first one counts.
        ids = {processor.IdToPiece(number): number for number in reversed(range(size))}
    except (RuntimeError, OSError, ValueError):  # ValueError: a piece is not UTF-8
        size = 0
    if not size:
        raise UsageError(f"{path}: not a SentencePiece model")
    encoder = SpmEncoder(raw, processor)
    control = [number for number in range(size) if processor.IsControl(number)]
    special = {processor.IdToPiece(number): number for number in control}
    begin, end, pad = processor.bos_id(), processor.eos_id(), processor.pad_id()  # -1 for none
    own = Roles(begin=begin, ends=(end,), pad=pad, unknown=processor.unk_id())
    roles = read_roles(path, ids, special, own)
    marked = _marked(size, control)
    return Vocabulary(path, "tokenizer.model", ids, special, roles, marked, encoder, encoder.encode)
