"""Forms: the content of a tokenizer, independent of its file format. There are two forms, ByteBpe
for byte-level BPE and Pieces for SentencePiece models."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.roles import Roles

# SentencePiece.Type; llama.cpp's token types are the same numbers.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"  # a space in pieces

BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))
MOST_TOKENS = 1 << 24  # of a vocabulary; more mean a damaged file


# Formats and the names of their files in a folder.
FILES = {
    "tokenizer.json": "tokenizer.json",
    "sentencepiece": "tokenizer.model",
    "tiktoken": "tokenizer.tiktoken",
    "gguf": "tokenizer.gguf",
}


def file_of(path: Path) -> Path:
    """Return the path of a tokenizer's file: `path` itself or, if it is a folder, the tokenizer
    file in it. If the folder has several, tokenizer.json comes first."""
    if not path.is_dir():
        return path
    files = (path / name for name in (*FILES.values(), "tekken.json"))
    return next((file for file in files if file.is_file()), path / "tokenizer.json")


class CannotHold(LlmcurateError):
    """Raised if a file format cannot express a feature of a tokenizer; the message names it."""


# The fields of an added token that decide where in a text it is matched.
FLAGS = ("special", "single_word", "lstrip", "rstrip", "normalized")


@dataclass(frozen=True)
class Added:
    """An added token: its text `content` and its id `number`. special: True for a special token,
    which is never encoded from text, even if the text spells it; False for a token that is matched
    in text before the model runs. single_word: True if only whole words match; lstrip, rstrip: True
    if the match includes spaces before or after the token; normalized: True if the token is matched
    in normalized text."""

    content: str
    number: int
    special: bool
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False


@dataclass(frozen=True)
class ByteBpe:
    """Byte-level BPE. tokens: the ids of tokens by their bytes, including all 256 bytes but no
    special tokens; merges: the merges in order of rank; parts: the patterns that cut text, in
    Oniguruma's syntax, applied one after the other; whole: True if a piece of text that equals a
    token becomes that token, even if merging gives others; roles: the special tokens by role."""

    tokens: dict[bytes, int]
    merges: tuple[tuple[bytes, bytes], ...]
    parts: tuple[str, ...]
    added: tuple[Added, ...] = ()
    whole: bool = False
    roles: Roles = field(default_factory=Roles)

    @property
    def size(self) -> int:
        """The highest id plus one."""
        return max([*self.tokens.values(), *(a.number for a in self.added)]) + 1

    @property
    def special(self) -> dict[str, int]:
        return {token.content: token.number for token in self.added if token.special}

    @property
    def numbers(self) -> dict[str, int]:
        """The id of each token by its text, with bytes that are not UTF-8 escaped."""
        texts = {token.decode("utf-8", "backslashreplace"): n for token, n in self.tokens.items()}
        return texts | {token.content: token.number for token in self.added}


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece model: pieces in the order of their ids, and the preparation of text. pieces:
    (text, score, type), with spaces as U+2581; charsmap: the precompiled normalization rules, or
    empty; prefix: True if a space is added before the text; squeeze: True if spaces at the ends are
    dropped and runs of spaces become one space; roles: the special tokens by role. SentencePiece's
    files alone have models of another kind (words or characters), spaces at the ends of words
    (suffix), and spaces that are not U+2581 (not escaped)."""

    kind: Literal["unigram", "bpe", "other"]
    pieces: tuple[tuple[str, float, int], ...]
    charsmap: bytes = b""
    prefix: bool = True
    squeeze: bool = True
    byte_fallback: bool = False
    roles: Roles = field(default_factory=Roles)
    suffix: bool = False
    escaped: bool = True

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The id of each piece by its text; of pieces with the same text, the first one's."""
        return {text: n for n, (text, _, _) in reversed([*enumerate(self.pieces)])}

    @property
    def size(self) -> int:
        """The highest id plus one."""
        return len(self.pieces)

    @property
    def special(self) -> dict[str, int]:
        return {text: n for n, (text, _, kind) in enumerate(self.pieces) if kind == CONTROL}

    @property
    def added(self) -> tuple[Added, ...]:
        """The special and the user-defined pieces. User-defined pieces have spaces instead of
        U+2581; if `prefix` is True, they are matched after a space is added before the text."""
        return tuple(
            Added(text.replace(SPACE, " "), n, False, normalized=self.prefix)
            if kind == USER_DEFINED
            else Added(text, n, True)
            for n, (text, _, kind) in enumerate(self.pieces)
            if kind in (CONTROL, UNKNOWN, USER_DEFINED)
        )

    @property
    def unknown(self) -> int:
        """The id of the unknown piece; every model has one."""
        return next(n for n, (_, _, kind) in enumerate(self.pieces) if kind == UNKNOWN)

    @property
    def starts_words(self) -> bool:
        """True if pieces have spaces only at the start, so text may be cut before space runs."""
        return not any(
            SPACE in text.lstrip(SPACE)
            for text, _, kind in self.pieces
            if kind in (NORMAL, USER_DEFINED)
        )


Form = ByteBpe | Pieces
