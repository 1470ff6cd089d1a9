"""Runs without reports, which take longer than the runs themselves: import `no_reports`. And models
that are quickly made."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curate.inspect.report import figures, page


@pytest.fixture(scope="module", autouse=True)
def no_reports() -> Iterator[None]:
    """run.json has no figures then, and report.html nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "gather", lambda out, by_date: figures.Figures())
        patch.setattr(page, "render", lambda record, found: "")
        yield


def quality_step(folder: Path, good: list[str], bad: list[str], **settings: Any) -> Any:
    """The step `quality` with a model of these words; None where no library can train one."""
    try:
        import fasttext_pybind  # noqa: F401
    except ImportError:
        return None
    from curate.scoring.quality.inputs import Texts
    from curate.scoring.quality.train import Training, train

    draw = random.Random(0)
    for name, words in (("good", good), ("bad", bad)):
        texts = [json.dumps({"text": " ".join(draw.choices(words, k=20))}) for _ in range(60)]
        (folder / f"{name}.jsonl").write_text("\n".join(texts))
    sides = (Texts([str(folder / f"{n}.jsonl")], True) for n in ("good", "bad"))
    train(*sides, folder / "made", Training(dim=4, epochs=2, bucket=1000))
    return {"quality": {"model": str(folder / "made" / "quality.bin"), **settings}}


def perplexity_step(folder: Path, words: list[str], **settings: Any) -> Any:
    """The step `perplexity` with a model of these words."""
    import pyarrow as pa

    from curate.scoring.perplexity.train import Smoothing, train

    draw = random.Random(1)
    lines = [" ".join(draw.choices(words, k=12)) for _ in range(200)]
    texts = [pa.array(lines, pa.large_string())]
    train(lambda: texts, folder, "m.bin", Smoothing(order=3, fallback=True), "plain", "whitespace",
          b"")  # fmt: skip
    return {"perplexity": {"model": str(folder / "m.bin"), **settings}}
