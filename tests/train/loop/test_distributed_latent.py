"""Latent attention and modules that predict later tokens, over two processes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from train.config import TrainConfig
from train.errors import TrainError
from train.loop.distributed import check_split
from train.loop.pretrain import pretrain
from train.model.attention_settings import Grouped, Latent
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Dense
from train.model.head_settings import Head

ROOT = Path(__file__).resolve().parents[3]
MODEL = ModelConfig(
    vocab=300,
    layers=2,
    hidden=32,
    context=32,
    dropout=0.1,
    attention=Latent(heads=4, query_rank=16, rank=12, rotary_dim=4, plain_dim=8, value_dim=6),
    feed_forward=Dense(width=64),
    head=Head(mtp=1),
)
TRAIN = TrainConfig(
    steps=8, rows=4, context=32, packing="best-fit", warmup=3, schedule="constant", device="cpu"
)
GROUPED = Grouped(heads=4, kv_heads=2, head_dim=8)
CODE = """
import json, pathlib, sys
import torch
from train.config import TrainConfig
from train.loop.pretrain import pretrain
from train.model.config import ModelConfig
from train.settings import from_dict

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
model, plans = json.loads(sys.argv[2])
for out, plan in plans.items():
    pretrain(
        pathlib.Path(sys.argv[1]), pathlib.Path(out),
        model=from_dict(ModelConfig, model, "plan"), train=from_dict(TrainConfig, plan, "plan"),
    )
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow  # small one: the whole of tests/train/model/test_mtp.py, by one process
def test_two_processes_have_the_losses_of_one(shard_folder, tmp_path):
    torch.set_num_threads(1)
    pretrain(shard_folder, tmp_path / "one", model=MODEL, train=TRAIN)
    plans = {
        str(tmp_path / kind): dataclasses.asdict(dataclasses.replace(TRAIN, parallel=kind))
        for kind in ("ddp", "fsdp")
    }
    (tmp_path / "code.py").write_text(CODE)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(tmp_path / "code.py"), str(shard_folder)]
    done = subprocess.run(
        [*command, json.dumps([dataclasses.asdict(MODEL), plans])],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    alone = _lines(tmp_path / "one")
    for kind in ("ddp", "fsdp"):
        for ours, theirs in zip(_lines(tmp_path / kind), alone, strict=True):
            for name in ("loss", "mtp"):
                assert ours[name] == pytest.approx(theirs[name], abs=1e-4), (kind, ours["step"])


def _lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("setting", ["tensor", "context_parallel"])
@pytest.mark.parametrize("without", ["attention latent", "head.mtp 1"])
def test_what_is_not_shared_so_is_refused_in_one_line(setting, without):
    kept = {"head": Head()} if without == "attention latent" else {"attention": GROUPED}
    model = dataclasses.replace(MODEL, **kept)
    plan = dataclasses.replace(TRAIN, **{setting: 2})
    with pytest.raises(TrainError, match=f"^{setting} 2 with {without}: ") as refused:
        check_split(model, plan)
    assert refused.value.exit_code == 2
