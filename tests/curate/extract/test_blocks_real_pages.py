"""The extractor `blocks` on real pages whose main text is known in passages."""

from __future__ import annotations

import gzip
import json
import os
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from warcio.archiveiterator import ArchiveIterator

from curate.extract.blocks import main_texts
from curate.text.decoding import decode

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
WEB = SHARED / "corpora" / "web"
# The weights were fitted on these pages too; on pages not seen they reach 0.01 less
# (curate/extract/main-text.md).
FLOOR = 0.92


def squeezed(text: str) -> str:
    return unicodedata.normalize("NFC", " ".join(text.replace("\u00ad", "").split()))


@pytest.fixture(scope="module")
def pages() -> list[tuple[str, list[str], list[str]]]:
    """(page, passages of its main text, passages of the rest)."""
    if not (WEB / "gold-snippets.jsonl.gz").exists():
        pytest.skip(f"no pages in {WEB}: set LLMCURATE_SHARED to the folder of real texts")
    with gzip.open(WEB / "gold-snippets.jsonl.gz", "rt") as lines:
        gold = {row["record_id"]: row for row in map(json.loads, lines)}
    found = []
    for path in sorted(WEB.glob("*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                row = gold.get(record.rec_headers.get_header("WARC-Record-ID"))
                if record.rec_type == "response" and row is not None:
                    page = decode(record.content_stream().read()).text
                    found.append((page, row["with"], row["without"]))
    return found


def test_passages_of_the_main_text_are_there_and_others_are_not(
    pages: list[tuple[str, list[str], list[str]]],
) -> None:
    texts = main_texts(pa.array([p for p, _, _ in pages], pa.large_string())).text.to_pylist()
    right = wrong = missed = 0
    for (_, with_, without), text in zip(pages, map(squeezed, texts), strict=True):
        there = sum(squeezed(p) in text for p in with_)
        right, missed = right + there, missed + len(with_) - there
        wrong += sum(squeezed(p) in text for p in without)
    assert len(pages) > 500
    assert 2 * right / (2 * right + wrong + missed) >= FLOOR
    assert sum(bool(t.strip()) for t in texts) >= 0.99 * len(pages)
