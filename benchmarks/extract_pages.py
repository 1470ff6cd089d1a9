"""Pages with passages that their main text has and lacks, texts by other extractors, and scores.

Counted as `llmcurate extract-eval` does (curate/extract/evaluate.py).
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, last_json, need, sized, without
from curate.extract.evaluate import site_of, snippet_counts, snippet_scores

PEER = ROOT / ".bench" / "extract" / "bin" / "python"
MOST = sized(None, 12)  # pages


@dataclass
class Page:
    """A decoded page; `with_` and `without` passages."""

    html: str
    site: str
    with_: list[str]
    without: list[str]


def _answered(gold: str, archives: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Decoded page, address and row of gold of each page that has one, in the archives' order."""
    from warcio.archiveiterator import ArchiveIterator

    from curate.text.decoding import decode

    with gzip.open(need(gold)[0], "rt") as lines:
        rows = {row["record_id"].strip("<>"): row for row in map(json.loads, lines)}
    for path in need(archives):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                name = record.rec_headers.get_header("WARC-Record-ID") or ""
                row = rows.get(name.strip("<>"))
                if record.rec_type == "response" and row is not None:
                    url = record.rec_headers.get_header("WARC-Target-URI")
                    yield decode(record.content_stream().read()).text, url, row


def load_pages() -> list[Page]:
    """The pages that have passages, in the archives' order."""
    found = islice(_answered("web/gold-snippets.jsonl.gz", "web/*.warc.gz"), MOST)
    return [Page(html, site_of(row["url"]), row["with"], row["without"]) for html, _, row in found]


@dataclass
class WholePage:
    """A decoded page with its whole main text; title, author, date: "" where it has none."""

    html: str
    url: str
    site: str
    kind: str
    text: str
    title: str
    author: str
    date: str


def load_whole_pages() -> list[WholePage]:
    """The development pages of WCXB, in the archive's order."""
    pages = []
    for html, _, row in islice(_answered("wcxb/dev-gold.jsonl.gz", "wcxb/*.warc.gz"), MOST):
        stated = (row[k] or "" for k in ("text", "title", "author", "date"))
        pages.append(WholePage(html, row["url"], site_of(row["url"]), row["page_type"], *stated))
    return pages


@dataclass
class NewsPage:
    """A decoded page of news with its whole main text; lang: el, en, pl, ru or zh."""

    html: str
    url: str
    site: str
    lang: str
    text: str


def load_news_pages() -> list[NewsPage]:
    """The development pages of the DAnIEL corpus, in the archive's order."""
    found = islice(_answered("news/dev-gold.jsonl.gz", "news/*.warc.gz"), MOST)
    return [NewsPage(html, url, site_of(url), row["lang"], row["text"]) for html, url, row in found]


_TOKEN = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]|[^\W\u3041-\u30ff\u3400-\u9fff]+")


def tokens(text: str) -> list[str]:
    """Words in lower case, Han and kana one by one, in order."""
    return _TOKEN.findall(text.lower())


def fold_of(site: str, folds: int) -> int:
    """In which fold the pages of a site are: all of a domain, its last two labels, in one."""
    domain = ".".join(site.split(".")[-2:])
    return zlib.crc32(domain.encode()) * 2654435761 % 2**32 * folds >> 32


def counts(pages: list[Page], texts: list[str]) -> tuple[int, int, int, int]:
    """True positives, false positives, false negatives, true negatives."""
    each = [
        snippet_counts(text, page.with_, page.without)
        for page, text in zip(pages, texts, strict=True)
    ]
    tp, fp, fn, tn = (sum(column) for column in zip(*each, strict=True))
    return tp, fp, fn, tn


def scores(pages: list[Page], texts: list[str]) -> dict[str, float]:
    """precision, recall, f1, accuracy."""
    return snippet_scores(*counts(pages, texts))


def write_pages(pages: Sequence[Page | WholePage | NewsPage], path: Path) -> None:
    path.write_text("".join(json.dumps({"html": p.html}) + "\n" for p in pages))


def texts_by(name: str, source: Path, passes: int = 1) -> tuple[list[str], dict[str, Any]]:
    """What an extractor (benchmarks/peers/extractors.py) makes of write_pages' file, and its
    figures; the environment of the others is built when absent."""
    python = sys.executable
    if name not in ("blocks", "resiliparse", "text"):
        without(name, PEER)
        build = ["sh", str(ROOT / "benchmarks" / "peer_env.sh"), "extract"]
        subprocess.run(build, check=True, stdout=sys.stderr)
        python = str(PEER)
    script = ROOT / "benchmarks" / "peers" / "extractors.py"
    handle, target = tempfile.mkstemp()
    os.close(handle)
    try:
        figures = last_json([python, str(script), name, str(source), target, str(passes)])
        lines = Path(target).read_text().split("\n")[:-1]
    finally:
        Path(target).unlink()
    return [json.loads(line)["text"] for line in lines], figures
