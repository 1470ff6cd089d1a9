"""A tokenizer for Python code: encode and decode whole texts, batches of texts, or texts in parts.

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

_WHOLE = 8  # tokens that one character may take; more only occur in text that is not UTF-8


class Tokenizer:
    """A tokenizer.json, tekken.json, SentencePiece .model or .tiktoken file. Its ids are those of
    the library that defines the file's format. Special tokens are never encoded from text."""

    def __init__(self, path: str | os.PathLike[str], pattern: str | None = None) -> None:
        """Open a tokenizer. path: the tokenizer's file or folder; pattern: the name of a published
        pattern, for .tiktoken files. Raises LlmcurateError naming the file."""
        self._tokens = open_candidate(Path(path), pattern)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        data = np.frombuffer(_utf8(text), np.uint8)
        return self._tokens.encode(data, np.array([0, len(data)]))[0].tolist()

    def encode_texts(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Yield the ids of each text as uint32[], in the order of texts. Memory holds a few
        megabytes of texts, or one text if it is longer."""
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
        """Yield the ids of one text that is given in parts, as several uint32[]; concatenated, they
        are the ids of the whole text. parts: the text, cut anywhere; parts of bytes may even end
        within characters. Memory holds a few megabytes if the tokenizer splits text before encoding
        and does not normalize it, such as a byte-level BPE with our encoder or a Unigram trained by
        llmcurate; for other tokenizers, memory holds the whole text."""
        chunks = (np.frombuffer(part, np.uint8) for part in _whole_characters(parts))
        return encode_parts(chunks, self._tokens.encode, self._tokens.encode_settled)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, special tokens included. Invalid UTF-8 becomes U+FFFD."""
        return self._tokens.decode([int(number) for number in ids])

    def decode_parts(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield the text of ids as the ids arrive. Concatenated, the parts are the text that
        `decode` returns. Tokens are held back until their characters are complete, or to the end
        if a tokenizer.json's decoder may change earlier text."""
        if not self._tokens.streams:
            if text := self.decode(ids):
                yield text
            return
        before: list[int] = []  # ids decoded before `waiting`, for its context
        waiting: list[int] = []
        enough = 1
        for number in ids:
            waiting.append(int(number))
            if len(waiting) < enough or waiting[-1] in self._tokens.byte_ids:
                continue
            text = self._text_after(before, waiting)
            if text.endswith("\ufffd"):
                enough = len(waiting) + 1 if len(waiting) < _WHOLE else 2 * len(waiting)
                continue
            if text:
                yield text
            before = waiting if text.strip() else before + waiting
            waiting, enough = [], 1
        if text := self._text_after(before, waiting):
            yield text

    def _text_after(self, before: list[int], ids: list[int]) -> str:
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
        raise RunFailed(f"the text is not valid Unicode: {error.reason}") from None


def _whole_characters(parts: Iterable[str] | Iterable[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for part in parts:
            yield _utf8(part) if isinstance(part, str) else decoder.decode(part).encode()
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise RunFailed(f"the text is not valid UTF-8: {error.reason}") from None
