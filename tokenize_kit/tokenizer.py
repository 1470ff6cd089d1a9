"""A tokenizer in Python: texts to ids and back, whole, many, or in parts.

from tokenize_kit.tokenizer import Tokenizer

tokenizer = Tokenizer("tok")
assert tokenizer.decode(tokenizer.encode("any text")) == "any text"
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from llmcurate.base.errors import RunFailed
from tokenize_kit.encode.parts import PART_BYTES, encode_parts, pack
from tokenize_kit.judge.candidate import open_candidate

_WHOLE = 8  # tokens of which characters wait for one another, but in text that is none


class Tokenizer:
    """A tokenizer.json, a SentencePiece .model, or tiktoken's ranks, with the ids of its library.
    No special token comes out of text."""

    def __init__(self, path: str | os.PathLike[str], pattern: str | None = None) -> None:
        """path: the file, or its folder; pattern: the name of a published one, for ranks. Raises
        LlmcurateError naming the file."""
        self._tokens = open_candidate(Path(path), pattern)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        data = np.frombuffer(_utf8(text), np.uint8)
        return self._tokens.encode(data, np.array([0, len(data)]))[0].tolist()

    def encode_texts(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """The ids of each text, uint32[], in order. Some megabytes of texts are in memory at once,
        or one text."""
        rows: list[bytes] = []
        size = 0
        for text in texts:
            rows.append(_utf8(text))
            size += len(rows[-1])
            if size >= PART_BYTES:
                yield from self._encode_rows(rows)
                rows, size = [], 0
        yield from self._encode_rows(rows)

    def encode_parts(self, parts: Iterable[str] | Iterable[bytes]) -> Iterator[np.ndarray]:
        """The ids of one text that comes in parts, uint32[] a time: together those of the whole.

        parts: cut anywhere, bytes of UTF-8 within characters too. Some megabytes are in memory
        where text is cut before it is encoded and nothing but ASCII has to be normalised (our
        encoder of byte-level BPE and of the Unigram trained here); else the text is gathered.
        """
        chunks = (np.frombuffer(part, np.uint8) for part in _whole_characters(parts))
        return encode_parts(chunks, self._tokens.encode, self._tokens.settle)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special tokens as they are spelled. Bytes that are not UTF-8 become
        U+FFFD."""
        return self._tokens.decode([int(number) for number in ids])

    def decode_parts(self, ids: Iterable[int]) -> Iterator[str]:
        """The text of ids as they come: together that of `decode`. Tokens wait for those that end
        their characters."""
        before: list[int] = []  # what the tokenizer needs to see of the text before
        waiting: list[int] = []
        enough = 1
        for number in ids:
            waiting.append(int(number))
            if len(waiting) < enough or waiting[-1] in self._tokens.byte_ids:
                continue
            text = self._text_behind(before, waiting)
            if text.endswith("\ufffd"):
                enough = len(waiting) + 1 if len(waiting) < _WHOLE else 2 * len(waiting)
                continue
            if text:
                yield text
            before = waiting if text.strip() else before + waiting
            waiting, enough = [], 1
        if text := self._text_behind(before, waiting):
            yield text

    def _text_behind(self, before: list[int], ids: list[int]) -> str:
        return self._tokens.decode(before + ids)[len(self._tokens.decode(before)) :]

    def _encode_rows(self, rows: list[bytes]) -> Iterator[np.ndarray]:
        if not rows:
            return
        ids, sizes = self._tokens.encode(*pack(rows))
        start = 0
        for size in sizes.tolist():
            yield ids[start : start + size]
            start += size


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RunFailed(f"a text that is not Unicode: {error.reason}") from None


def _whole_characters(parts: Iterable[str] | Iterable[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for part in parts:
            yield _utf8(part) if isinstance(part, str) else decoder.decode(part).encode()
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise RunFailed(f"a text that is not UTF-8: {error.reason}") from None
