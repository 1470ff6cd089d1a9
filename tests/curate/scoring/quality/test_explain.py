"""`llmcurate explain` says which words moved a document's score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.inspect.explain import explain
from curate.scoring.quality.model import Classifier


@pytest.fixture
def documents(bench: Any, make_documents: Any) -> Path:
    """Twenty of both kinds, and one without a word."""
    rows = [r for kind in ("good", "poor") for r in make_documents(kind, 20, 5)]
    return bench.jsonl("in.jsonl", [*rows, {"id": "blank", "text": "\u2028 \n"}])


def test_explain_names_the_words_that_decide_a_score(
    model: Path, documents: Path, bench: Any, words_of: Any
) -> None:
    bench.run([{"quality": {"model": str(model), "threshold": 0.5}}], documents)
    out = bench.folder / "out"
    name = next(i for i in bench.ids("out", "rejected") if i.startswith("poor"))
    explanation = explain([out], name)
    head, *shares = explanation.explained["quality"]
    assert head.startswith(f"score {explanation.measured['quality.score']:.6f}, logit -")
    assert head.endswith("of hq against cc")
    words = {s.split("'")[1] for s in shares if " word '" in s and s.startswith("-")}
    assert words & set(words_of["poor"])
    assert not words & set(words_of["good"])
    printed = str(explanation)
    assert f"  quality: {head}\n    {shares[0]}\n" in printed
    good = explain([out], next(i for i in bench.ids() if i.startswith("good")))
    raised = " ".join(s for s in good.explained["quality"][1:] if s.startswith("+"))
    assert any(w in raised for w in words_of["good"])
    assert explain([out], "blank").explained["quality"] == ["score 0, no word"]


def test_explain_without_the_model_says_so_in_one_line(
    model: Path, documents: Path, bench: Any
) -> None:
    own_model = bench.folder / "mine.bin"
    own_model.write_bytes(model.read_bytes())
    bench.run([{"quality": {"model": str(own_model)}}], documents)
    name = bench.ids()[0]
    own_model.write_bytes(model.read_bytes()[:-1] + b"\1")
    for message in ("differs from model_sha256", "mine.bin"):
        (line,) = explain([bench.folder / "out"], name).explained["quality"]
        assert message in line
        own_model.unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["good", "poor"])
def test_the_shares_of_a_text_make_up_its_score(
    kind: str, model: Path, make_documents: Any
) -> None:
    for row in make_documents(kind, 5, 4):
        explanation = Classifier(model).explain(row["text"])
        assert sum(s.adds for s in explanation.shares) == pytest.approx(explanation.logit, abs=1e-5)
        assert 1 / (1 + np.exp(-explanation.logit)) == pytest.approx(explanation.score, abs=2e-5)
