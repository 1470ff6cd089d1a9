"""Open a tokenizer file of any kind for the encoding of shards.

tokenizer.json    our kernels if possible, otherwise `tokenizers`
*.model           SentencePiece: our kernels if possible, otherwise its library
*.tiktoken        tiktoken's ranks, by our kernels; the file does not contain its pattern
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmcurate.base.errors import UsageError
from tokenize_kit.encode.byte_bpe import ByteEncoder, plan_of
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import Encode, EncodeSettled, settle_nothing
from tokenize_kit.encode.spm import SpmEncoder
from tokenize_kit.formats.forms import read_file
from tokenize_kit.formats.tiktoken import PATTERN_NAMES, read_ranks, special_of
from tokenize_kit.formats.tokenizer_json import (
    BEGIN_OF_TEXT,
    END_OF_TEXT,
    load_tokenizer,
    special_ids,
)

# Encode with two more arguments: the rows' keys, uint64[rows], and a rate.
Sample = Callable[[np.ndarray, np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer that encodes shards. size: the highest id plus one; special: the ids of special
    tokens by name; file: the name that a copy of the tokenizer's file gets next to the shards;
    forbidden: bool[size], the ids that text must never give; threads: True if several threads may
    call `encode` at once; drawn: the kind of the model if `sample` can draw its ids, otherwise
    None; undrawn: a function that returns bool[rows], the rows for which `sample` draws nothing."""

    path: Path
    file: str
    size: int
    special: dict[str, int]
    forbidden: np.ndarray
    encode: Encode
    threads: bool = False
    sample: Sample | None = None
    drawn: str | None = None
    undrawn: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    encode_settled: EncodeSettled = settle_nothing

    def sampled(self, rate: float) -> Sample:
        """Return the encoder that draws ids at random. Raises ``LlmcurateError`` if the model
        cannot draw ids or the rate is out of range."""
        if self.sample is None or self.drawn is None:
            raise UsageError(
                f"{self.path}: sampling works for byte-level BPE and for a tokenizer.json with a"
                " Unigram model that our kernels encode; leave sampling out"
            )
        if not (0 <= rate <= 1 if self.drawn == "bpe" else rate > 0):
            limits = "from 0 to 1" if self.drawn == "bpe" else "above 0"
            raise UsageError(f"sampling {rate:g}: for {self.drawn} give a rate {limits}")
        return self.sample

    def end(self) -> int:
        """Return the id of the token that ends a document."""
        return self._first(END_OF_TEXT, "end-of-text", "encode without it (--no-eos)")

    def begin(self) -> int:
        """Return the id of the token that begins a document."""
        return self._first(BEGIN_OF_TEXT, "beginning-of-text", "encode without it (no --bos)")

    def _first(self, names: tuple[str, ...], role: str, without: str) -> int:
        for name in names:
            if name in self.special:
                return self.special[name]
        raise UsageError(
            f"the tokenizer has no {role} token (one of {', '.join(names)}): add one, or {without}"
        )


def open_vocabulary(path: Path, pattern: str | None = None) -> Vocabulary:
    """Open a tokenizer file. pattern: the name of a published pattern, for .tiktoken files. Raises
    ``LlmcurateError`` naming the file."""
    if path.suffix == ".tiktoken":
        return open_ranks(path, pattern)[0]
    if pattern is not None:
        raise UsageError(f"{path}: a pattern is for .tiktoken files; leave it out")
    return _pieces(path) if path.suffix == ".model" else _library(path)


def _marked(size: int, ids: list[int]) -> np.ndarray:
    marked = np.zeros(size, np.bool_)
    marked[ids] = True
    return marked


def _library(path: Path) -> Vocabulary:
    tokenizer = load_tokenizer(path)
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    special = special_ids(tokenizer)
    # Text may give the unknown token; any other special token would be forged.
    forged = [index for name, index in special.items() if "unk" not in name.lower()]
    encoder = Encoder(tokenizer)
    marked, ours = _marked(size, forged), encoder.reason is None
    return Vocabulary(
        path,
        "tokenizer.json",
        size,
        special,
        marked,
        encoder.encode,
        threads=ours,
        sample=encoder.sample,
        drawn=encoder.drawn,
        undrawn=encoder.odd,
        encode_settled=encoder.encode_settled if encoder.can_settle else settle_nothing,
    )


def open_ranks(path: Path, pattern: str | None) -> tuple[Vocabulary, dict[bytes, int]]:
    """Open a .tiktoken file; return its vocabulary and the rank of each token. Raises
    ``LlmcurateError`` naming the file."""
    if pattern not in PATTERN_NAMES:
        names = ", ".join(PATTERN_NAMES)
        raise UsageError(
            f"{path}: a .tiktoken file does not contain its pattern: give --pattern, one of {names}"
        )
    try:
        ranks = read_ranks(read_file(path))
        plan = plan_of(ranks, pattern)
    except ValueError as error:
        raise UsageError(f"{path}: not a .tiktoken file: {error}") from None
    special = special_of(pattern, max(ranks.values()))
    size = max(special.values()) + 1
    forbidden = _marked(size, list(special.values()))
    encoder = ByteEncoder(plan)
    vocabulary = Vocabulary(
        path,
        "tokenizer.tiktoken",
        size,
        special,
        forbidden,
        encoder.encode,
        threads=True,
        sample=encoder.sample,
        drawn="bpe",
        encode_settled=encoder.encode_settled,
    )
    return vocabulary, ranks


def _pieces(path: Path) -> Vocabulary:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    raw = read_file(path)
    try:
        processor.LoadFromSerializedProto(raw)
        size = processor.GetPieceSize()
        control = [k for k in range(size) if processor.IsControl(k)]
        special = {processor.IdToPiece(k): k for k in control}
    except (RuntimeError, OSError, ValueError):  # ValueError: a piece is not UTF-8
        size = 0
    if not size:
        raise UsageError(f"{path}: not a SentencePiece model")
    encoder = SpmEncoder(raw, processor)
    marked, ours = _marked(size, control), encoder.reason is None
    return Vocabulary(path, "tokenizer.model", size, special, marked, encoder.encode, threads=ours)
