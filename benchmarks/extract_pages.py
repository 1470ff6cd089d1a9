"""Pages with passages that their main text has and lacks, texts by other extractors, and scores.

Counted as trafilatura's own evaluation does (adbar/trafilatura, tests/evaluate.py): a passage that
belongs and is there is a true positive, one that does not and is there a false positive; here after
white space, soft hyphens and the composition of letters are made equal in both.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import unicodedata
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
