"""A tokenizer for Python code: encode and decode texts.

from tokenize_kit.tokenizer import Tokenizer

tokenizer = Tokenizer("tok")
assert tokenizer.decode(tokenizer.encode("any text")) == "any text"
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from llmcurate.base.errors import RunFailed
from tokenize_kit.encode.parts import PART_BYTES, pack
from tokenize_kit.judge.candidate import open_candidate


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

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, special tokens included. Invalid UTF-8 becomes U+FFFD."""
        return self._tokens.decode([int(number) for number in ids])

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
