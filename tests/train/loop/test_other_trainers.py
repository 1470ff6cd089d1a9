"""A model learns from other trainers' files and from a single long text, and is judged on the text
that these hold out."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.train.conftest import sentences
from tests.train.data.feed_settings import TWO_LAYERS
from tests.train.data.token_files import litdata, litgpt, mds_of, megatron, nanogpt
from tokenize_kit.shards.writer import encode_shards
from train.config import TrainConfig
from train.loop.pretrain import pretrain

# Five ids in a circle, and five others that a model never sees in training.
TAUGHT = [[1 + (first + k) % 5 for k in range(40)] + [0] for first in range(30)]
HIDDEN = [[101 + (first + k) % 5 for k in range(40)] + [0] for first in range(3)]
TRAIN = TrainConfig(steps=30, rows=8, context=32, warmup=5, device="cpu", vocab_size=300)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(nanogpt, id="nanogpt"),
        pytest.param(litgpt, id="litgpt"),
        pytest.param(megatron, id="megatron"),
        pytest.param(litdata, id="litdata", marks=pytest.mark.lab),
        pytest.param(lambda *at: mds_of(*at, "bytes"), id="mds", marks=pytest.mark.lab),
    ],
)
def test_a_model_learns_the_training_text_and_is_judged_on_the_text_held_out(tmp_path, write):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "train", TAUGHT)
    write(tmp_path / "data" / "val", HIDDEN)
    train = replace(TRAIN, end_of_text=0)
    summary = pretrain(tmp_path / "data", tmp_path / "out", model=TWO_LAYERS, train=train)
    assert summary["last_loss"] < 0.6 * summary["first_loss"]
    assert summary["held_out_loss"] > 0.95 * summary["first_loss"]  # none of it was seen
    assert summary["scored_documents"] == 3


def test_a_single_text_is_learned_and_judged_by_its_end(tmp_path, shard_folder):
    """Its last tenth is scored up to eval_tokens, in bits per byte of that tenth."""
    text = sentences(3, 150)
    batch = pa.RecordBatch.from_pylist([{"id": "play", "text": text}])
    encode_shards([batch], shard_folder / "tokenizer.json", tmp_path / "shards")
    train = replace(TRAIN, held_out=0.1, eval_tokens=64)
    summary = pretrain(tmp_path / "shards", tmp_path / "out", model=TWO_LAYERS, train=train)
    assert summary["held_out_loss"] < 0.7 * summary["first_loss"]
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    scored = json.loads(lines[-1])["held_out"]
    assert (scored["documents"], scored["tokens"]) == (1, 64)
    tokens = np.fromfile(tmp_path / "shards" / "tokens-00000.bin", "<u2")
    assert scored["bytes"] == pytest.approx(64 * len(text.encode()) / len(tokens), rel=0.05)
