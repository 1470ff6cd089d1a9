"""Variants of real pages: as many different pages as are wanted, with the markup, the lengths and
the words of real ones.

In a variant the words of each piece of text stand in another order, but for those that end in
punctuation: languages, ratios and repetition stay as they are, and no two variants share 5-grams.
Pages that do not declare English are thinned to two of seven, so that nearly half of the documents
are English, as in Common Crawl. Without the real pages: generated ones (generated_corpus.py).
"""

from __future__ import annotations

import gzip
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.generated_corpus import documents  # noqa: E402
from benchmarks.shared_texts import SHARED  # noqa: E402

# Tags, scripts and styles as they are; everything between them is text. Bytes as Latin-1.
_PIECE = re.compile(r"(?is)<(script|style)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>|[^<]+")
_ENGLISH = re.compile(rb"(?i)<html[^>]{0,300}\blang\s*=\s*[\"']?en")
GENERATED_PAGES = 230  # a variant has about as many of the real ones


def real_pages() -> list[tuple[str, bytes]]:
    """(URL, HTML) of the real pages; none where they are absent."""
    from warcio.archiveiterator import ArchiveIterator

    pages = []
    for path in sorted((SHARED / "corpora").glob("web/*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                if record.rec_type == "response":
                    url = record.rec_headers.get_header("WARC-Target-URI")
                    pages.append((url, record.content_stream().read()))
    return pages


def shuffled(page: bytes, seed: str) -> bytes:
    """The page with the words of its texts in another order."""
    draw = random.Random(seed)

    def piece(match: re.Match[str]) -> str:
        text = match.group()
        if text.startswith("<") or len(text) < 20:
            return text
        words = text.split(" ")
        moving = [i for i, w in enumerate(words) if w.isalpha()]
        order = moving[:]
        draw.shuffle(order)
        swapped = words[:]
        for a, b in zip(moving, order, strict=True):
            swapped[a] = words[b]
        return " ".join(swapped)

    return _PIECE.sub(piece, page.decode("latin-1")).encode("latin-1")


def _variant(pages: list[tuple[str, bytes]], k: int) -> Iterator[tuple[str, bytes]]:
    for i, (url, page) in enumerate(pages):
        if _ENGLISH.search(page[:5000]) or (i + k) % 7 < 2:
            yield f"{url}#{k}" if k else url, shuffled(page, f"{k}/{i}")


def _generated(k: int) -> Iterator[tuple[str, bytes]]:
    from benchmarks.bench_refresh import page

    for row in documents(GENERATED_PAGES, seed=k):
        yield f"{row['url']}?{k}", page(row)


def write_variants(folder: Path, numbers: range) -> str:
    """Writes an archive a variant; returns what the pages are."""
    pages = real_pages()
    for k in numbers:
        with gzip.open(folder / f"pages-{k:04d}.warc.gz", "wb", 6) as file:
            chosen = _variant(pages, k) if pages else _generated(k)
            for n, (url, body) in enumerate(chosen):
                data = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
                head = (
                    "WARC/1.0\r\nWARC-Type: response\r\n"
                    f"WARC-Record-ID: <urn:variant:{k}:{n}>\r\nWARC-Target-URI: {url}\r\n"
                    "WARC-Date: 2024-01-01T00:00:00Z\r\nContent-Type: application/http;"
                    f" msgtype=response\r\nContent-Length: {len(data)}\r\n\r\n"
                )
                file.write(head.encode("utf-8", "replace") + data + b"\r\n\r\n")
    return "variants of real pages" if pages else "generated pages"
