"""Damaged checkpoints, folders of transformers' and token shards: read right, or one line."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given

torch = pytest.importorskip("torch")

from tests.fuzz.mutations import FUZZ, SEEDS, damaged, damaged_tree, outcome  # noqa: E402
from tests.train.conftest import shard_folder  # noqa: E402, F401
from train.config import TrainConfig  # noqa: E402
from train.data.shards import read_shards  # noqa: E402
from train.evaluate import judge as nats  # noqa: E402
from train.generate import Sampling, complete  # noqa: E402
from train.generate import load as load_ours  # noqa: E402
from train.hf.export import export  # noqa: E402
from train.hf.load import load as load_any  # noqa: E402
from train.model.attention_settings import Grouped  # noqa: E402
from train.model.config import ModelConfig  # noqa: E402
from train.model.decoder import Decoder  # noqa: E402
from train.model.feed_forward_settings import Dense  # noqa: E402
from train.runs.checkpoint import Keep, State, write  # noqa: E402
from train.runs.plan import Plan  # noqa: E402


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, shard_folder: Path) -> Path:  # noqa: F811
    """A model in `ours`, as transformers has it in `theirs`, and the shards in `shards`."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(shard_folder, folder / "shards")
    config = ModelConfig(
        vocab=300,
        layers=1,
        hidden=16,
        context=32,
        attention=Grouped(heads=2, kv_heads=1, head_dim=8),
        feed_forward=Dense(width=16),
    )
    model = Decoder(config)
    plan = Plan(model=config, train=TrainConfig(context=32), shards="shards")
    tensors = {"model": dict(model.state_dict())}
    state = State(step=1, tokens=9)
    write(folder / "ours" / "checkpoints", plan, state, tensors, Keep(newest=1))
    shutil.copy(folder / "shards" / "tokenizer.json", folder / "ours")
    export(folder / "ours", folder / "theirs")
    return folder


def _generated(folder: Path) -> None:
    model, tokenizer = load_ours(folder)
    complete(model, tokenizer, ["the cat"], max_tokens=2, sampling=Sampling(), seed=0)


def _opened(folder: Path) -> None:
    shards = read_shards(folder)
    for number in range(shards.documents):
        assert (shards.document(number) < 1 << 32).all()
    shards.ids(list(range(shards.documents)))
    read_shards(folder, verify=True)


USES = {"ours": _generated, "theirs": load_any, "shards": _opened}


@pytest.mark.parametrize("name", USES)
@FUZZ
@given(seed=SEEDS)
def test_damaged_models_and_shards_are_read_or_one_line(models: Path, name: str, seed: int) -> None:
    target = models / "damaged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(models / name, target)
    files = sorted(p for p in target.rglob("*") if p.is_file() and p.suffix not in (".md", ".txt"))
    path = files[seed % len(files)]
    data = path.read_bytes()
    if path.suffix == ".json" and seed // 64 % 4:
        path.write_text(json.dumps(damaged_tree(json.loads(data), seed)))
    else:
        path.write_bytes(damaged(data, seed))
    outcome(lambda: USES[name](target))


def test_nats_that_claim_more_numbers_than_they_have_are_made_again(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    head = io.BytesIO()
    claim = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    np.lib.format.write_array_header_1_0(head, claim)
    np.savez(path, **{nats._MADE_OF: np.array(json.dumps({"text": "x"}))})
    with ZipFile(path, "a") as file:
        file.writestr("text.npy", head.getvalue())
    assert nats._read_stored(path) == ({}, {})
