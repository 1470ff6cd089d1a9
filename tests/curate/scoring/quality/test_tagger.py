"""Taggers: sentences with a label are cut, and the rest of the text does not change."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import Documents, documents
from curate.lab.scoring.tagger import Tagger, pieces
from curate.scoring.quality.model import Classifier
from llmcurate.base.disk.files import file_digest
from llmcurate.base.errors import UsageError
from tests.curate.replayed_edits import replayed

GOOD = "The theorem and the lemma measure the energy of the river."
POOR = "Buy cheap sale offer cart, click the cheap casino sale."


def applied(step: Tagger, *texts: str | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    ids = [str(i) for i in range(len(texts))]
    docs: Documents = documents({"id": ids, "text": list(texts)})
    kept, rejected = step.apply(docs.within("tagger")).split()
    return kept.to_pylist(), rejected.to_pylist()


@pytest.fixture(scope="module")
def tagger(model: Path) -> Tagger:
    return Tagger(model=str(model), tag="cc", threshold=0.5)


def test_a_sentence_with_the_label_is_cut_and_on_record(tagger: Tagger) -> None:
    text = f"{GOOD} {POOR} {GOOD}\n{POOR}"
    (kept,), _ = applied(tagger, text)
    assert kept["text"] == f"{GOOD}  {GOOD}\n"
    assert replayed(text, kept["edits"]) == kept["text"]
    assert {e["rule"] for e in kept["edits"]} == {"tagged"}
    assert (kept["tagger.units"], kept["tagger.tagged"]) == (4, 2)


def test_each_score_is_the_models_score_of_that_sentence_only(tagger: Tagger, model: Path) -> None:
    one = Classifier(model, "cc")
    (kept, *_), _ = applied(tagger, GOOD, POOR)
    data = np.frombuffer(bytearray(GOOD.encode()), np.uint8)
    expected = one.scores(data, np.array([0, len(data)], np.int64))[0]
    assert kept["tagger.max_score"] == pytest.approx(expected, abs=1e-4)


def test_a_document_that_loses_every_sentence_goes(tagger: Tagger) -> None:
    kept, rejected = applied(tagger, POOR, "", None, GOOD)
    assert [r["id"] for r in kept] == ["1", "2", "3"]  # what was empty before lost nothing
    assert [(r["id"], r["rule"], r["text"]) for r in rejected] == [("0", "nothing_left", POOR)]


def test_dropping_takes_the_document_and_leaves_texts(model: Path) -> None:
    for unit in ("sentence", "paragraph", "document"):
        step = Tagger(model=str(model), tag="cc", threshold=0.5, unit=unit, action="drop")
        kept, rejected = applied(step, f"{POOR}\n{GOOD}" if unit != "document" else POOR, GOOD)
        assert [r["text"] for r in kept] == [GOOD], unit
        assert [r["rule"] for r in rejected] == ["tagged"], unit


def test_the_tagger_uses_the_label_that_is_not_rest(model: Path) -> None:
    assert "label hq" in Tagger(model=str(model)).notes()[0]
    with pytest.raises(UsageError, match="no label 'toxic'; it has"):
        Tagger(model=str(model), tag="toxic").identity()


def test_a_missing_model_says_where_one_comes_from() -> None:
    with pytest.raises(UsageError, match=r"--set tagger.model=PATH; train one .* Dolma's"):
        Tagger(model="nowhere.bin").identity()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=9), max_size=6), st.data())
def test_pieces_copies_the_requested_spans(parts: list[bytes], draw: Any) -> None:
    data = np.frombuffer(bytearray().join([*parts, b"end"]), np.uint8)
    ends = np.cumsum([0, *map(len, parts)])
    chosen = draw.draw(st.permutations(range(len(parts))))
    start, end = ends[:-1][chosen], ends[1:][chosen]
    out, offsets = pieces(data, start.astype(np.int64), end.astype(np.int64))
    assert [out[a:z].tobytes() for a, z in pairwise(offsets)] == [parts[i] for i in chosen]


def test_the_recipe_of_a_run_says_which_model_it_was(model: Path) -> None:
    assert Tagger(model=str(model)).resolved()["model_sha256"] == file_digest(model)
