"""Damaged web archives in any compression: documents and named damage; steps on what they hold."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard
from hypothesis import example, given

from llmcurate.base.errors import LlmcurateError
from tests.curate.formats.warc_files import arc, http, warc
from tests.fuzz.archives import read
from tests.fuzz.mutations import FUZZ, SEEDS, damaged, outcome

TEXT = "The river rose in the night, and by the morning the whole valley was under water. "
PAGES = [
    f"<!doctype html><html><head><title>Page {n}</title></head><body><p>{TEXT * (n + 1)}"
    "<table><tr><td>A<td>B</table><ul><li>one<li>two</ul>&amp; &#x1F600;</body></html>".encode()
    if n
    else b""
    for n in range(5)
]
PLAIN = {
    "warc": [
        warc(b"software: x\r\n", "warcinfo", Content_Type="application/warc-fields"),
        *(warc(http(page), number=n) for n, page in enumerate(PAGES, 1)),
        warc(
            http(gzip.compress(PAGES[2], mtime=0), "text/html\r\nContent-Encoding: gzip"), number=8
        ),
        warc(
            http(b"5\r\nhello\r\n0\r\n\r\n", "text/plain\r\nTransfer-Encoding: chunked"),
            number=9,
        ),
        warc("ภาษาไทย und so weiter".encode(), "conversion", 10, Content_Type="text/plain"),
    ],
    "arc": [arc(http(page), n) for n, page in enumerate(PAGES)],
}  # fmt: skip


def _with_dictionary(parts: list[bytes]) -> bytes:
    """As .warc.zst has it: a skippable frame with the dictionary, then frames that need it."""
    samples = [p[a : a + 300] for p in parts for a in range(0, len(p), 40)]
    words = zstandard.train_dictionary(1 << 10, samples * 4)
    frame = zstandard.ZstdCompressor().compress(words.as_bytes())
    compress = zstandard.ZstdCompressor(dict_data=words, write_checksum=True).compress
    head = struct.pack("<II", 0x184D2A5D, len(frame)) + frame
    return head + b"".join(map(compress, parts))


CODECS: dict[str, Callable[[list[bytes]], bytes]] = {
    "": b"".join,
    ".gz": lambda parts: b"".join(gzip.compress(p, mtime=0) for p in parts),
    ".bz2": lambda parts: b"".join(map(bz2.compress, parts)),
    ".xz": lambda parts: lzma.compress(b"".join(parts)),
    ".lz4": lambda parts: b"".join(map(lz4.frame.compress, parts)),
    ".zst": lambda parts: b"".join(
        zstandard.ZstdCompressor(write_checksum=True).compress(p) for p in parts
    ),
    ".dictionary.zst": _with_dictionary,
}


def path_of(folder: Path, kind: str, codec: str) -> Path:
    return folder / f"a.{kind}{codec.replace('.dictionary', '')}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archives")


@pytest.mark.parametrize("codec", CODECS)
@FUZZ
@example(seed=40843)
@given(seed=SEEDS)
def test_a_damaged_archive_is_documents_and_named_damage(
    folder: Path, codec: str, seed: int
) -> None:
    kind = "arc" if seed % 4 == 0 else "warc"
    parts = PLAIN[kind]
    inner = seed % 3 == 0  # records are damaged, or what they are compressed to
    if inner:
        hit = seed // 12 % len(parts)
        parts = [damaged(p, seed) if n == hit else p for n, p in enumerate(parts)]
    stored = CODECS[codec](parts)
    path = path_of(folder, kind, codec)
    path.write_bytes(stored if inner else damaged(stored, seed))
    limits = {"max_record_bytes": 1 << 20, "max_payload_bytes": 1 << 20}
    result = outcome(lambda: read(path, **limits))
    assert not isinstance(result, (OSError, LlmcurateError)) or str(path) in str(result)


STEPS = "extract, gopher_quality, gopher_repetition, c4, fineweb_quality, pii: {phones: true}"


@pytest.fixture(scope="module")
def steps() -> list[Any]:
    from curate.steps.recipe import parse

    recipe = parse(f"{{steps: [{STEPS}]}}", "recipe.yaml")
    for step in recipe.document_steps:
        step.open()
    return list(recipe.document_steps)


@FUZZ
@given(seed=SEEDS)
def test_steps_take_whatever_a_damaged_archive_holds(
    folder: Path, steps: list[Any], seed: int
) -> None:
    path = folder / "steps.warc"
    records = [damaged(p, seed + n) if n else p for n, p in enumerate(PLAIN["warc"])]
    path.write_bytes(b"".join(records))

    def run() -> int:
        kept = 0
        for docs in read(path)[0]:
            for step in steps:
                docs = step.apply(docs.within(step.label))
            keep, rejected = docs.split()[:2]
            kept += keep.num_rows + rejected.num_rows
        return kept

    outcome(run)


def test_an_archive_that_is_whole_has_all_its_documents(folder: Path) -> None:
    for kind, parts in PLAIN.items():
        for codec, compress in CODECS.items():
            path = path_of(folder, kind, codec)
            path.write_bytes(compress(parts))
            batches, corrupt = read(path)
            assert sum(d.table.num_rows for d in batches) >= 5 and corrupt == [], path
