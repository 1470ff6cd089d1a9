"""The nats of documents: equal to the judge's, cached with the run, and recomputed when stale."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.train.data.feed_settings import MODEL
from tests.train.loop.small_runs import build, trained
from train.data.shards import read_shards
from train.evaluate import judge as nats
from train.evaluate.judge import judge, open_model


@pytest.fixture
def run(shard_folder, tmp_path):
    tokenizer = read_shards(shard_folder).tokenizer
    return trained(tmp_path, build(replace(MODEL, context=64)), tokenizer)


def nats_of(run, folder, context, **how):
    return nats.document_nats(run, {"own": folder}, context=context, device="cpu", **how)["own"]


@pytest.mark.parametrize("context", [16, 64])
def test_the_nats_of_documents_add_up_to_what_the_judge_finds(run, shard_folder, context):
    found = nats_of(run, shard_folder, context)
    text = {"own": shard_folder}
    figures = judge(open_model(run, device="cpu"), texts=text, questions={}, context=context)
    bits = found.sum() / math.log(2) / read_shards(shard_folder).bytes.sum()
    assert len(found) == 40 and bits == pytest.approx(figures.texts["own"].bits_per_byte)


def test_nats_are_kept_and_another_context_makes_them_anew(run, shard_folder, monkeypatch):
    far, near = nats_of(run, shard_folder, 64), nats_of(run, shard_folder, 16)
    assert not np.allclose(far, near)
    monkeypatch.setattr(nats, "open_model", None)  # nothing is computed
    np.testing.assert_array_equal(nats_of(run, shard_folder, 16), near)


def test_nats_are_computed_in_the_precision_that_is_asked_for(run, shard_folder):
    whole = nats_of(run, shard_folder, 64, precision="fp32")
    (run / nats.FILE).unlink()
    half = nats_of(run, shard_folder, 64, precision="bf16")
    assert not np.array_equal(half, whole) and half == pytest.approx(whole, rel=0.01)
