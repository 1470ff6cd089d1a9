"""Helpers for tests of refreshes: small inputs with duplicates, a HOME, and its corpus."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from curate.corpus.manifests import manifest_path
from curate.documents.attributes import DocumentsFile
from curate.refresh import run
from curate.refresh.outcome import Refreshed, RefreshOptions
from curate.refresh.snapshot import removed_file
from curate.steps.recipe import parse

WORDS = "river mill house stone water light field horse wagon road bridge winter".split()
START = datetime(2026, 11, 20, 6, 0, tzinfo=timezone.utc)
Row = dict[str, Any]


def text(draw: random.Random) -> str:
    lines = [" ".join(draw.choices(WORDS, k=12)).capitalize() + "." for _ in range(7)]
    return "\n".join(lines)


def inputs(count: int = 40, seed: int = 3) -> list[list[Row]]:
    """Three inputs; later ones have copies and near copies of earlier ones, and ids that stood
    there."""
    draw = random.Random(seed)
    earlier: list[str] = []
    batches = []
    for name in "abc":
        rows = []
        for i in range(count):
            kind = draw.random() if earlier else 1.0
            new = text(draw)
            if kind < 0.2:
                new = draw.choice(earlier)
            elif kind < 0.4:
                new = f"{draw.choice(earlier)} And one more."
            elif kind < 0.5:
                new = "\n".join([*new.split("\n")[:4], *draw.choice(earlier).split("\n")[2:6]])
            earlier.append(new)
            # Of three in four the path makes the id; the others share theirs among inputs.
            own = {"id": f"d{i}"} if i % 4 == 0 else {"id": f"{name}{i}"}
            rows.append({**own, "text": new, "url": f"https://h{i % 5}.test/{name}/{i}"})
        batches.append(rows)
    return batches


class Home:
    """A HOME in a test's folder. steps: of its recipe."""

    def __init__(self, bench: Any, steps: list[Any], name: str = "home") -> None:
        self.bench, self.steps, self.path = bench, steps, bench.folder / name
        self._minutes = 0

    def refresh(
        self, *sources: Path | str, steps: list[Any] | None = None, **how: Any
    ) -> Refreshed:
        """One refresh in this process, a minute after the one before."""
        self._minutes += 1
        now = START + timedelta(minutes=self._minutes)
        recipe = parse(json.dumps({"steps": steps or self.steps}), "recipe.yaml")
        options = RefreshOptions(**{"workers": 1, "quiet": True, "now": now, **how})
        return run.refresh(recipe, [str(g) for g in sources], self.path, options)

    def rows(self, snapshot: str | None = None) -> list[Row]:
        """All rows of the current snapshot, or of another."""
        paths = sorted(self.folder(snapshot).glob("part-*.parquet"))
        return [row for p in paths for row in DocumentsFile(p).read().to_pylist()]

    def folder(self, snapshot: str | None = None) -> Path:
        """The folder of the current snapshot, or of another."""
        return self.path / "corpus" / snapshot if snapshot else (self.path / "current").resolve()

    def snapshots(self) -> list[str]:
        """Names of the snapshots that stand, the oldest first."""
        return sorted(p.name for p in (self.path / "corpus").iterdir() if p.is_dir())

    def manifest(self, snapshot: str | None = None) -> dict[str, Any]:
        """The manifest of the current snapshot, or of another."""
        path = manifest_path(self.folder(snapshot))
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content

    def removed(self) -> list[Row]:
        """The documents that are listed as removed from the current snapshot."""
        path = removed_file(self.folder())
        return pq.read_table(path).to_pylist() if path else []

    def ids(self, snapshot: str | None = None) -> list[str]:
        """Their ids."""
        return [row["id"] for row in self.rows(snapshot)]
