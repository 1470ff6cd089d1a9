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
DOCUMENTS = 320
OTHERS = 76  # images, style sheets, redirects, errors, robots.txt


@dataclass(frozen=True)
class Page:
    """A page of the demo web. `kind` is the kind of page that was planted; `expect` lists what a
    pipeline should do with it. `source_id` is the page that this one duplicates, `cluster` the name
    of its set of duplicates. `planted` holds, by kind, the similarity, the passage or the personal
    data. `declared` says where the charset is declared."""

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
    with path.open(encoding="utf-8") as lines:
        rows = map(json.loads, lines)
        return [Page(**row | {"planted": row["planted"] or {}}) for row in rows]


@dataclass(frozen=True)
class DemoWeb:
    """The files that `build_web` wrote, with the number of documents and of other records."""

    paths: list[Path]
    truth: Path
    documents: int = DOCUMENTS
    others: int = OTHERS


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
