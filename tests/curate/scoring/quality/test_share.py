"""Real texts: documentation told from novels, and a share of a real corpus kept."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import zstandard

from curate.engines.local import call_apart
from curate.lab.evaluate.classifiers import evaluate_quality
from curate.scoring.language.train import Training
from curate.scoring.quality.train import PRESETS, Texts, train

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[5] / "shared"))
LONG = SHARED / "corpora" / "longtext"
pytestmark = pytest.mark.skipif(not LONG.is_dir(), reason=f"no real texts in {SHARED}")
# DCLM's settings, but for so few documents a model that is small and learns faster.
SETTINGS: Training = replace(PRESETS["dclm"], dim=16, bucket=20_000, lr=0.5, held_out=0.3)


def pieces(name: str, most: int = 150, size: int = 2000) -> list[dict[str, Any]]:
    """Documents cut into pieces, each file's first ones."""
    with (LONG / name).open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        texts = (json.loads(line)["text"] for line in lines)
        cut = (t[i : i + size] for t in texts for i in range(0, len(t) - size + 1, size))
        return [{"id": f"{name}{i}", "text": t} for i, t in enumerate(islice(cut, most))]


@pytest.fixture(scope="module")
def real(shared_bench: Any) -> tuple[Path, Path, Path]:
    """(documentation, novels, a model that tells them apart)."""
    pytest.importorskip("fasttext_pybind")
    good = shared_bench.jsonl("peps.jsonl", pieces("en-peps.jsonl.zst"))
    rest = shared_bench.jsonl("novels.jsonl", pieces("en-novels.jsonl.zst"))
    folder = shared_bench.folder / "model"
    card = train(Texts([str(good)], True), Texts([str(rest)], True), folder, SETTINGS, call_apart)
    assert card["held_out"]["roc_auc"] > 0.98
    return good, rest, folder / "quality.bin"


def test_a_quality_model_generalises_to_other_documentation(
    real: tuple[Path, Path, Path], shared_bench: Any
) -> None:
    _, rest, model = real
    book = shared_bench.jsonl("book.jsonl", pieces("en-rustbook.jsonl.zst", 60))
    figures = evaluate_quality(model, [str(book)], [str(rest)], quiet=True).figures
    assert figures["roc_auc"] > 0.95
    assert figures["average_precision"] > 0.9
    assert figures["deciles"][0]["good"] > figures["deciles"][-1]["good"]


def test_a_tenth_of_a_real_corpus_is_its_best_tenth(
    real: tuple[Path, Path, Path], shared_bench: Any
) -> None:
    good, rest, model = real
    step = {"quality": {"model": str(model), "keep_fraction": 0.1}}
    shared_bench.run([step], good, rest, out="tenth")
    kept = shared_bench.rows("tenth")
    gone = shared_bench.rows("tenth", "rejected")
    assert len(kept) == 30
    assert min(r["quality.score"] for r in kept) > max(r["quality.score"] for r in gone)
    assert all(r["id"].startswith("en-peps") for r in kept)
