"""The demo web: WARC files shipped with the package, and the list of what was planted in each page.

The hosts are invented, and the articles were written for the demo.
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


@dataclass(frozen=True)
class Page:
    """A page of the demo web, and what was planted in it."""

    id: str
    url: str
    kind: str  # kind of planted page
    lang: str
    expect: list[str]  # what a pipeline should do with the page
    source_id: str | None  # the page that this one duplicates
    cluster: str | None  # name of the page's set of duplicates
    similarity: float | None
    planted: Mapping[str, Any]  # similarity, passage or personal data, by kind
    charset: str
    declared: str  # where the charset is declared
    warc: str


def read_truth(path: Path) -> list[Page]:
    with path.open(encoding="utf-8") as lines:
        rows = map(json.loads, lines)
        return [Page(**row | {"planted": row["planted"] or {}}) for row in rows]


@dataclass(frozen=True)
class DemoWeb:
    """The files that `build_web` wrote, with the number of documents and of other records."""

    paths: list[Path]
    truth: Path  # list of what was planted in each page
    documents: int = 320
    others: int = 76  # images, style sheets, redirects, errors, robots.txt


def build_web(folder: Path) -> DemoWeb:
    """Copy the archives and ``truth.jsonl`` into `folder`, except files already copied."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for path in sorted(WEB.iterdir()):
        target = folder / path.name
        if not target.exists() or not filecmp.cmp(path, target, shallow=False):
            shutil.copyfile(path, target)
        paths.append(target)
    truth, *archives = paths
    return DemoWeb(archives, truth)
