"""The vocabulary that encodes shards, whatever kind of file it comes from.

tokenizer.json    our kernels where they can, else `tokenizers`
*.model           SentencePiece, our kernels where they can, else its own library
*.tiktoken        tiktoken's ranks, by our kernels; the file does not say how text is cut
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmcurate.base.errors import UsageError
from tokenize_kit.encode.byte_bpe import ByteEncoder, plan_of
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import Encode, Settle, whole_alone
from tokenize_kit.encode.spm import SpmEncoder
from tokenize_kit.formats.forms import read_file
from tokenize_kit.formats.tiktoken import PATTERN_NAMES, read_ranks, special_of
from tokenize_kit.formats.tokenizer_json import (
    BEGIN_OF_TEXT,
    END_OF_TEXT,
    load_tokenizer,
    special_ids,
)

# As Encode of two more: keys of the rows, uint64[rows], and a rate.
Sample = Callable[[np.ndarray, np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Vocabulary:
    """size: the highest id and one; special: name to id; file: its name beside the shards;
    forbidden: bool[size]: ids that no text may give; threads: whether `encode` may run in several
    at once; drawn: the model of which `sample` draws ids, None where it cannot; undrawn: the rows
    that it does not draw, bool[rows]; settle: as parts.py has it."""

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
    settle: Settle = whole_alone

    def sampled(self, rate: float) -> Sample:
        """Encoding with ids that are drawn; raises ``LlmcurateError`` for a model of which they
        cannot be, and for a rate that it does not have."""
        if self.sample is None or self.drawn is None:
            raise UsageError(
                f"{self.path}: sampling: ids are drawn of byte-level BPE and of Unigram in a"
                " tokenizer.json that our kernels encode; leave sampling out"
            )
        if not (0 <= rate <= 1 if self.drawn == "bpe" else rate > 0):
            limits = "0 to 1" if self.drawn == "bpe" else "above 0"
            raise UsageError(f"sampling {rate:g}: for {self.drawn} give {limits}")
        return self.sample

    def end(self) -> int:
        """The id of the token that ends a document."""
        return self._first(END_OF_TEXT, "end-of-text", "encode without it (--no-eos)")

    def begin(self) -> int:
        """The id of the token that begins a document."""
        return self._first(BEGIN_OF_TEXT, "beginning-of-text", "encode without it (no --bos)")

    def _first(self, names: tuple[str, ...], role: str, without: str) -> int:
        for name in names:
            if name in self.special:
                return self.special[name]
        raise UsageError(
            f"the tokenizer has no {role} token (one of {', '.join(names)}): add one, or {without}"
        )


def open_vocabulary(path: Path, pattern: str | None = None) -> Vocabulary:
    """Read a tokenizer's file; pattern: the name of a published one, for ranks. Raises
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
    # The unknown token is an honest answer to text; every other special token would be a forgery.
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
        settle=encoder.settle if encoder.settles else whole_alone,
    )


def open_ranks(path: Path, pattern: str | None) -> tuple[Vocabulary, dict[bytes, int]]:
    """tiktoken's file, and its ranks by token; raises ``LlmcurateError`` naming it."""
    if pattern not in PATTERN_NAMES:
        names = ", ".join(PATTERN_NAMES)
        raise UsageError(
            f"{path}: ranks do not say how text is cut: give --pattern, one of {names}"
        )
    try:
        ranks = read_ranks(read_file(path))
        plan = plan_of(ranks, pattern)
    except ValueError as error:
        raise UsageError(f"{path}: no file of ranks: {error}") from None
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
        settle=encoder.settle,
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
    except (RuntimeError, OSError, ValueError):  # the last of a piece that is not UTF-8
        size = 0
    if not size:
        raise UsageError(f"{path}: not a SentencePiece model")
    encoder = SpmEncoder(raw, processor)
    marked, ours = _marked(size, control), encoder.reason is None
    return Vocabulary(path, "tokenizer.model", size, special, marked, encoder.encode, threads=ours)
