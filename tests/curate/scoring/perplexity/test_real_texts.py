"""On real prose, a small model gives held-out prose a lower perplexity than junk."""

from __future__ import annotations

import io
import json
import os
import random
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[5] / "shared"))
TEXTS = SHARED / "corpora/longtext"
SIZE = 3000


def texts(name: str, count: int) -> list[str]:
    with (TEXTS / f"{name}.jsonl.zst").open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        return [json.loads(line)["text"] for line in islice(lines, count)]


def in_pieces(chapters: list[str]) -> list[str]:
    return [t[a : a + SIZE] for t in chapters for a in range(0, len(t) - SIZE + 1, SIZE)]


def auc(bad: np.ndarray, clean: np.ndarray) -> float:
    """How often a bad value is above a clean one."""
    return float((bad[:, None] > clean[None, :]).mean())


@pytest.mark.skipif(not TEXTS.exists(), reason="no real texts: set LLMCURATE_SHARED")
def test_held_out_prose_has_lower_perplexity_than_junk(tmp_path: Path, train_on: Any) -> None:
    chapters = texts("en-novels", 48)
    held = [c for k, c in enumerate(chapters) if k % 8 == 7]
    learnt = [line for k, c in enumerate(chapters) if k % 8 != 7 for line in c.splitlines()]
    model = train_on(tmp_path, learnt, order=3, min_count=2)
    clean, draw = in_pieces(held), random.Random(0)
    words = [t.split() for t in clean]

    def listed(words: list[str]) -> str:
        """Three words a line, from anywhere. (One a line: half of it is ends of lines, which are
        expected after anything, and that is no higher than prose.)"""
        starts = draw.sample(range(0, len(words) - 3, 3), len(words) // 6)
        return "\n".join(" ".join(words[a : a + 3]).title() for a in starts)

    bad = {
        "shuffled": [" ".join(draw.sample(w, len(w))) for w in words],
        "list": [listed(w) for w in words],
        "german": in_pieces(texts("de-novels", 2))[:30],
        "russian": in_pieces(texts("ru-novels", 2))[:30],
    }
    good = model.perplexity(pa.array(clean, pa.large_string()))
    assert len(clean) > 20
    for kind, pieces in bad.items():
        values = model.perplexity(pa.array(pieces, pa.large_string()))
        assert auc(values, good) >= 0.98, kind
