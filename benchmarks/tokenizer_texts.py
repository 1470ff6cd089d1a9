"""Texts of several kinds for measuring tokenizers, as lists of documents."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator

from benchmarks.shared_texts import NO_TEXTS, need, own_pages

KINDS = {
    "English": "longtext/en-*.jsonl.zst",
    "Thai": "longtext/th-*.jsonl.zst",
    "Chinese": "longtext/zh-*.jsonl.zst",
    "code": "code/*.jsonl.gz",
    "all": "longtext/*.jsonl.zst",
}
PIECE = 20_000  # characters of a document at most


def documents(kind: str, limit: float) -> list[str]:
    """Documents of a kind, up to `limit` bytes, long ones in pieces."""
    passages, size = [], 0
    for text in kind_texts(KINDS[kind]):
        for start in range(0, len(text), PIECE):
            passages.append(text[start : start + PIECE])
            size += len(passages[-1].encode())
            if size >= limit:
                return passages
    return passages


def kind_texts(pattern: str) -> Iterator[str]:
    """The texts of the files of that pattern, in their folder of real texts; of a smoke run without
    it the pages of docs/.
    """
    if NO_TEXTS:
        yield from own_pages()
        return
    import zstandard

    for path in need(pattern):
        with path.open("rb") as file:
            if path.suffix == ".gz":
                stream = io.BytesIO(gzip.decompress(file.read()))
            else:
                stream = io.BytesIO(zstandard.ZstdDecompressor().stream_reader(file).read())
            for line in io.TextIOWrapper(stream, "utf-8"):
                yield json.loads(line)["text"]
