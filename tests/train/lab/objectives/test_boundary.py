"""Spans predicted from their neighbours: finding the neighbours, and a model that learns."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.data.feed_settings import MODEL, PLAIN
from train.hf.export import export
from train.lab.model.heads import PLACES, span_context
from train.loop.pretrain import pretrain
from train.model.presets import preset
from train.objective_settings import Masked
from train.objectives.example import IGNORED


def plain(targets: list[int], documents: list[int], at: int) -> tuple[int, int, int] | None:
    """Return the neighbours of the span at ``at`` and its place in the span, or None if one is
    missing.
    """
    left = right = at
    while left >= 0 and targets[left] != IGNORED:
        left -= 1
    while right < len(targets) and targets[right] != IGNORED:
        right += 1
    known = targets[at] != IGNORED and left >= 0 and right < len(targets)
    if not known or len({documents[left], documents[at], documents[right]}) > 1:
        return None
    return (left, right, at - left - 1) if at - left - 1 < PLACES else None


@given(
    rows=st.lists(
        st.lists(st.tuples(st.booleans(), st.sampled_from([0, 0, 0, 1])), min_size=50, max_size=50),
        min_size=1,
        max_size=3,
    ),
    dense=st.booleans(),
)
def test_the_boundaries_of_a_span_are_those_of_a_plain_loop(rows, dense):
    targets = [
        [7 if hidden or (dense and n % 25) else IGNORED for n, (hidden, _) in enumerate(r)]
        for r in rows
    ]
    documents = [torch.tensor([new for _, new in row]).cumsum(0).tolist() for row in rows]
    spans = span_context(torch.tensor(targets), torch.tensor(documents))
    for row, (own, of_row) in enumerate(zip(targets, documents, strict=True)):
        for place in range(50):
            index = 50 * row + place
            expected = plain(own, of_row, place)
            assert bool(spans.known[index]) == (expected is not None)
            if expected is not None:
                parts = (spans.left[index], spans.right[index], spans.place[index])
                left, right, inside = (int(part) for part in parts)
                assert (left - 50 * row, right - 50 * row, inside) == expected


@pytest.mark.parametrize(
    ("first", "end", "known"),
    [(1, 3, 2), (0, 2, 0), (37, 39, 2), (38, 40, 0), (1, 1 + PLACES, 20), (1, 39, 20)],
)
def test_a_span_has_20_places_and_both_of_its_neighbours(first, end, known):
    targets = torch.full((1, 40), IGNORED)
    targets[0, first:end] = 7
    spans = span_context(targets, None)
    assert spans.known.nonzero().flatten().tolist() == [*range(first, first + known)]
    assert spans.place[spans.known].tolist() == [*range(known)]
    assert set(spans.left[spans.known].tolist()) == ({first - 1} if known else set())


def test_a_model_learns_the_boundary_objective_and_is_exported_without_its_head(
    shard_folder, tmp_path
):
    torch.set_num_threads(1)
    changes = {"layers": 1, "hidden": 32, "attention.heads": 2, "attention.kv_heads": 2}
    changes |= {"attention.head_dim": 16, "feed_forward.width": 64, "head.boundary": True}
    changes |= {"head.pair": "none", "vocab": 320}
    config = change(preset("bert-tiny", context=32), changes, "model")
    plan = replace(PLAIN, objective=Masked(unit="span"), steps=30, lr=0.01, log_every=1)
    pretrain(shard_folder, tmp_path / "out", model=config, train=plan)
    lines = (tmp_path / "out/metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["boundary"] for line in lines]
    assert losses[-1] < 0.8 * losses[0]
    transformers = pytest.importorskip("transformers")
    export(tmp_path / "out", tmp_path / "hf")
    _, loaded = transformers.BertForMaskedLM.from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )
    assert not loaded["missing_keys"] and not loaded["unexpected_keys"]


def test_a_decoder_has_no_such_head():
    with pytest.raises(LlmcurateError, match=r"head\.boundary with causal true"):
        change(MODEL, {"head.boundary": True}, "model")
