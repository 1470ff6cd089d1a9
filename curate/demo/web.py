"""The demonstration web: WARC files that come with the package, and what was planted where.

Hosts are invented, and articles were written for it (texts.py). Charsets are declared in headers,
in meta elements and nowhere; bodies are plain, chunked and gzipped.
"""

from __future__ import annotations

import filecmp
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.steps.shipped import FOLDER

WEB = FOLDER / "demo" / "web"
DOCUMENTS = 320
OTHERS = 76  # images, style sheets, redirects, errors, robots.txt


@dataclass(frozen=True)
class Page:
    """A document of the web. kind: of plant; expect: what a pipeline should do with it (score.py);
    source_id: of the page that it is a copy of; cluster: of pages that are copies of each other;
    planted: by kind the similarity, the passage or the personal data; declared: where the charset
    is."""

    id: str
    url: str
    kind: str
    lang: str
    expect: list[str]
    source_id: str | None
    cluster: str | None
    similarity: float | None
    planted: Mapping[str, Any]
    charset: str
    declared: str
    warc: str


def read_truth(path: Path) -> list[Page]:
    """The pages of a ``truth.jsonl``."""
    with path.open(encoding="utf-8") as lines:
        rows = map(json.loads, lines)
        return [Page(**row | {"planted": row["planted"] or {}}) for row in rows]


@dataclass(frozen=True)
class DemoWeb:
    """What `build_web` wrote. others: records that are no documents."""

    paths: list[Path]
    truth: Path
    documents: int = DOCUMENTS
    others: int = OTHERS


def build_web(folder: Path) -> DemoWeb:
    """Copies ``web-00000.warc.gz``, ``web-00001.warc.gz`` and ``truth.jsonl`` into the folder;
    files that hold the same bytes already stay untouched."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for path in sorted(WEB.iterdir()):
        target = folder / path.name
        if not target.exists() or not filecmp.cmp(path, target, shallow=False):
            shutil.copyfile(path, target)
        paths.append(target)
    truth, *archives = paths
    return DemoWeb(archives, truth)
