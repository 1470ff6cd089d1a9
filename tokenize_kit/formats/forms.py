"""The forms of tokenizers: their content in terms that are the same for every file format. There
are two, byte-level BPE and the pieces of a SentencePiece model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from llmcurate.base.errors import LlmcurateError, UsageError

# SentencePiece.Type; llama.cpp's token types are the same numbers.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"  # a space in pieces

MOST_BYTES = 256 << 20  # of a tokenizer's file; published ones have up to 50 MB
BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))
MOST_TOKENS = 1 << 24  # of a vocabulary; more mean a damaged file


def read_file(path: Path) -> bytes:
    """Return the bytes of a file. Raises ``LlmcurateError`` if it is unreadable or too large."""
    try:
        size = path.stat().st_size
        if size <= MOST_BYTES:
            return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    raise UsageError(f"{path}: too large for a tokenizer ({size:,} bytes)")


class CannotHold(LlmcurateError):
    """Raised if a file format cannot express a feature of a tokenizer; the message names it."""


@dataclass(frozen=True)
class Added:
    """A token matched in the text before the model runs. Special ones are never matched in text."""

    content: str
    number: int
    special: bool


@dataclass(frozen=True)
class ByteBpe:
    """Byte-level BPE. tokens: the ids of tokens by their bytes, including all 256 bytes but no
    special tokens; merges: the merges in order of rank; parts: the patterns that cut text, in
    Oniguruma's syntax, applied one after the other; whole: True if a piece of text that equals a
    token becomes that token, even if merging gives other tokens."""

    tokens: dict[bytes, int]
    merges: tuple[tuple[bytes, bytes], ...]
    parts: tuple[str, ...]
    added: tuple[Added, ...] = ()
    whole: bool = False

    @property
    def size(self) -> int:
        """The highest id plus one."""
        return max([*self.tokens.values(), *(a.number for a in self.added)]) + 1

    @property
    def special(self) -> dict[str, int]:
        return {token.content: token.number for token in self.added if token.special}


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece model: pieces in the order of their ids, and the preparation of text. pieces:
    (text, score, type), with spaces as U+2581; charsmap: the precompiled normalization rules, or
    empty; prefix: True if a space is added before the text; squeeze: True if spaces at the ends are
    dropped and runs of spaces become one space; begin, end, pad: ids, or -1."""

    kind: Literal["unigram", "bpe"]
    pieces: tuple[tuple[str, float, int], ...]
    charsmap: bytes = b""
    prefix: bool = True
    squeeze: bool = True
    byte_fallback: bool = False
    begin: int = -1
    end: int = -1
    pad: int = -1
    # Text of a piece to its first id.
    numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers: dict[str, int] = {}
        for number, (text, _, _) in enumerate(self.pieces):
            numbers.setdefault(text, number)
        object.__setattr__(self, "numbers", numbers)

    @property
    def size(self) -> int:
        """The highest id plus one."""
        return len(self.pieces)

    @property
    def special(self) -> dict[str, int]:
        return {text: n for n, (text, _, kind) in enumerate(self.pieces) if kind == CONTROL}

    @property
    def unknown(self) -> int:
        """The id of the unknown piece; every model has one."""
        return next(n for n, (_, _, kind) in enumerate(self.pieces) if kind == UNKNOWN)

    @property
    def starts_words(self) -> bool:
        """True if no piece continues after a space, so text may be cut before runs of spaces."""
        return not any(
            SPACE in text.lstrip(SPACE)
            for text, _, kind in self.pieces
            if kind in (NORMAL, USER_DEFINED)
        )


Form = ByteBpe | Pieces
