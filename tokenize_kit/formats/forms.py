"""The forms of tokenizers: byte-level BPE, and pieces of SentencePiece, whatever file they come
from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from llmcurate.base.errors import LlmcurateError, UsageError

# SentencePiece.Type; llama.cpp's token types are the same numbers.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"  # the spelling of a space in pieces

MOST_BYTES = 256 << 20  # of a tokenizer's file; published ones have up to 50 MB
BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))
MOST_TOKENS = 1 << 24  # ids of a vocabulary; a larger one is a damaged file


def read_file(path: Path) -> bytes:
    """A tokenizer's file, whole; ``LlmcurateError`` where it cannot be read or is too large."""
    try:
        size = path.stat().st_size
        if size <= MOST_BYTES:
            return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    raise UsageError(f"{path}: no tokenizer, it has {size:,} bytes")


class CannotHold(LlmcurateError):
    """A file format that has no place for a feature of a tokenizer; the message names it."""


@dataclass(frozen=True)
class Added:
    """A token that stands beside the model; special ones never come out of text."""

    content: str
    number: int
    special: bool


@dataclass(frozen=True)
class ByteBpe:
    """Byte-level BPE.

    tokens: bytes to id, all 256 bytes among them, special ones not; merges: in order of rank;
    parts: patterns one after the other, as Oniguruma reads them; whole: a piece of text that is a
    token is that token, whatever merging gives.
    """

    tokens: dict[bytes, int]
    merges: tuple[tuple[bytes, bytes], ...]
    parts: tuple[str, ...]
    added: tuple[Added, ...] = ()
    whole: bool = False

    @property
    def size(self) -> int:
        """The highest id and one."""
        return max([*self.tokens.values(), *(a.number for a in self.added)]) + 1

    @property
    def special(self) -> dict[str, int]:
        """The ids of special tokens."""
        return {token.content: token.number for token in self.added if token.special}


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece model: pieces in order of their ids, and how text is prepared.

    pieces: (text, score, type), a space as U+2581; charsmap: the precompiled rules of
    normalisation, empty for none; prefix: a space is put before the text; squeeze: spaces at the
    ends are dropped and runs of them made one.
    """

    kind: Literal["unigram", "bpe"]
    pieces: tuple[tuple[str, float, int], ...]
    charsmap: bytes = b""
    prefix: bool = True
    squeeze: bool = True
    byte_fallback: bool = False
    begin: int = -1
    end: int = -1
    pad: int = -1
    # Texts of pieces to their ids, the first of equals.
    numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers: dict[str, int] = {}
        for number, (text, _, _) in enumerate(self.pieces):
            numbers.setdefault(text, number)
        object.__setattr__(self, "numbers", numbers)

    @property
    def size(self) -> int:
        """The highest id and one."""
        return len(self.pieces)

    @property
    def special(self) -> dict[str, int]:
        """The ids of special tokens."""
        return {text: n for n, (text, _, kind) in enumerate(self.pieces) if kind == CONTROL}

    @property
    def unknown(self) -> int:
        """The id of the unknown piece; every model has one."""
        return next(n for n, (_, _, kind) in enumerate(self.pieces) if kind == UNKNOWN)

    @property
    def starts_words(self) -> bool:
        """Whether no piece goes on over a space, so that text may be cut before runs of them."""
        return not any(
            SPACE in text.lstrip(SPACE)
            for text, _, kind in self.pieces
            if kind in (NORMAL, USER_DEFINED)
        )


Form = ByteBpe | Pieces
