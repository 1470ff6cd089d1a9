"""Runs of models with a part from a user's own file."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from curate.cli.app import invoke
from llmcurate.base.errors import LlmcurateError
from train.config import TrainConfig
from train.generate import load
from train.loop.pretrain import pretrain
from train.model import plugin_settings as code

TRAIN = TrainConfig(
    steps=2, rows=2, context=32, warmup=0, eval_every=2, eval_tokens=64, checkpoint_every=1,
    log_every=1, device="cpu",
)  # fmt: skip
MINE = """
from train.model.layers import FeedForward
class Mine(FeedForward):
    def forward(self, x, view):
        return self.down(self.up(x) * self.gate(x))
"""
SMALL = {"layers": 1, "hidden": 32, "feed_forward.width": 16}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(code, "TRUSTED", set())
    torch.set_num_threads(1)


def changes(path, text=MINE):
    path.write_text(text)
    return SMALL | {"feed_forward": f"{path}:Mine"}


def test_a_stopped_run_continues_with_the_same_text_alone(shard_folder, tmp_path):
    path, out = tmp_path / "mine.py", tmp_path / "out"
    once = dataclasses.replace(TRAIN, steps=1, schedule="constant")
    pretrain(shard_folder, out, changes=changes(path), train=once)
    twice = dataclasses.replace(once, steps=2)
    assert pretrain(shard_folder, out, changes=changes(path), train=twice)["steps"] == 2
    with pytest.raises(LlmcurateError, match=r"feed_forward\.code: \w{12}, not \w{12}"):
        pretrain(shard_folder, out, changes=changes(path, MINE + "# other\n"), train=twice)


def test_a_trained_model_no_longer_needs_the_file(shard_folder, tmp_path, monkeypatch):
    path, out = tmp_path / "mine.py", tmp_path / "out"
    pretrain(shard_folder, out, changes=changes(path), train=TRAIN)
    path.unlink()
    load(out)
    pretrain(shard_folder, tmp_path / "on", model=str(out), train=TRAIN)
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(code, "TRUSTED", set())
    with pytest.raises(LlmcurateError, match="--trust-code"):
        load(out)


def test_an_error_in_a_step_is_a_one_line_error(shard_folder, tmp_path):
    wrong = MINE.replace("self.up(x) * self.gate(x)", "x @ x")
    with pytest.raises(LlmcurateError, match=r"^mine.py:5: RuntimeError"):
        pretrain(shard_folder, tmp_path / "a", changes=changes(tmp_path / "mine.py", wrong))
    assert not list((tmp_path / "a").glob("checkpoints/*"))


def test_a_recipe_runs_a_file_that_is_allowed_alone(shard_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    changes(tmp_path / "mine.py")
    step = {"model": SMALL | {"feed_forward.kind": "mine.py:Mine"}, "shards": str(shard_folder)}
    step |= {"steps": 1, "rows": 2, "context": 32, "eval_tokens": 64}
    recipe = tmp_path / "r.yaml"
    recipe.write_text(json.dumps({"name": "r", "steps": [{"pretrain": step}]}))
    assert invoke(["run", str(recipe), "-o", "out", "--quiet"]) == 2
    assert "runs Python code, mine.py:Mine" in capsys.readouterr().err
    assert invoke(["run", str(recipe), "-o", "out", "--quiet", "--allow-python"]) == 0
