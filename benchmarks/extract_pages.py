"""Pages with passages that their main text has and lacks, texts by other extractors, and scores.

Counted as trafilatura's own evaluation does (adbar/trafilatura, tests/evaluate.py): a passage that
belongs and is there is a true positive, one that does not and is there a false positive; here after
white space, soft hyphens and the composition of letters are made equal in both.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, last_json, need

PEER = ROOT / ".bench" / "extract" / "bin" / "python"


@dataclass
class Page:
    """A decoded page; `with_` and `without` passages."""

    html: str
    site: str
    with_: list[str]
    without: list[str]


def squeezed(text: str) -> str:
    """White space as single spaces, soft hyphens gone, letters and their marks composed."""
    return unicodedata.normalize("NFC", " ".join(text.replace("\u00ad", "").split()))


def load_pages() -> list[Page]:
    """The pages that have passages, in the archives' order."""
    from warcio.archiveiterator import ArchiveIterator

    from curate.text.buffers import decode

    gold: dict[str, Any] = {}
    with gzip.open(need("web/gold-snippets.jsonl.gz")[0], "rt") as lines:
        for line in lines:
            row = json.loads(line)
            gold[row["record_id"]] = row
    pages = []
    for path in need("web/*.warc.gz"):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                row = gold.get(record.rec_headers.get_header("WARC-Record-ID") or "")
                if record.rec_type != "response" or row is None:
                    continue
                page, _ = decode(record.content_stream().read())
                site = site_of(row["url"])
                pages.append(Page(page, site, row["with"], row["without"]))
    return pages


WORD = re.compile(r"\w+")


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
    from warcio.archiveiterator import ArchiveIterator

    from curate.text.buffers import decode

    with gzip.open(need("wcxb/dev-gold.jsonl.gz")[0], "rt") as lines:
        gold = {row["record_id"]: row for row in map(json.loads, lines)}
    pages = []
    for path in need("wcxb/*.warc.gz"):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                name = record.rec_headers.get_header("WARC-Record-ID") or ""
                row = gold.get(name.strip("<>"))
                if record.rec_type != "response" or row is None:
                    continue
                page, _ = decode(record.content_stream().read())
                stated = (row[k] or "" for k in ("text", "title", "author", "date"))
                site = ".".join(site_of(row["url"]).split(".")[-2:])
                pages.append(WholePage(page, row["url"], site, row["page_type"], *stated))
    return pages


def words(text: str) -> list[str]:
    """As WCXB counts them."""
    return WORD.findall(text.lower())


def f1_of_words(ours: Counter[str], gold: Counter[str]) -> float:
    """F1 of multisets of words; 1 for two empty ones."""
    if not ours and not gold:
        return 1.0
    hits = (ours & gold).total()
    return 2 * hits / (ours.total() + gold.total())


def fold_of(site: str, folds: int, salt: int = 0) -> int:
    """In which fold the pages of a site are."""
    return (zlib.crc32(site.encode()) + salt * 7919) * 2654435761 % 2**32 * folds >> 32


def site_of(url: str) -> str:
    """The host without www; behind an archive's address the one that it keeps."""
    _, _, kept = url.rpartition("/http")
    host = urlsplit("http" + kept if "web.archive.org" in url else url).hostname or url
    return host.removeprefix("www.")


def counts(pages: list[Page], texts: list[str]) -> tuple[int, int, int, int]:
    """True positives, false positives, false negatives, true negatives."""
    tp = fp = fn = tn = 0
    for page, text in zip(pages, texts, strict=True):
        text = squeezed(text)
        present = sum(squeezed(p) in text for p in page.with_)
        wrong = sum(squeezed(p) in text for p in page.without)
        tp, fn = tp + present, fn + len(page.with_) - present
        fp, tn = fp + wrong, tn + len(page.without) - wrong
    return tp, fp, fn, tn


def scores(pages: list[Page], texts: list[str]) -> dict[str, float]:
    """precision, recall, f1, accuracy."""
    tp, fp, fn, tn = counts(pages, texts)
    return {
        "precision": tp / max(1, tp + fp),
        "recall": tp / max(1, tp + fn),
        "f1": 2 * tp / max(1, 2 * tp + fp + fn),
        "accuracy": (tp + tn) / max(1, tp + fp + fn + tn),
    }


def write_pages(pages: list[Page], path: Path) -> None:
    path.write_text("".join(json.dumps({"html": p.html}) + "\n" for p in pages))


def texts_by(name: str, source: Path, passes: int = 1) -> tuple[list[str], dict[str, Any]]:
    """What an extractor (benchmarks/peers/extractors.py) makes of write_pages' file, and its
    figures; the environment of the others is built when absent."""
    python = sys.executable
    if name not in ("blocks", "resiliparse"):
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
