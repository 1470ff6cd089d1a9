"""The curves of a run for other tools: what they get, in a run and after a resume."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
import types

import pytest

from llmcurate.base.errors import LlmcurateError
from train.config import TrainConfig
from train.loop.pretrain import pretrain

TRAIN = TrainConfig(
    steps=4, rows=2, context=32, warmup=1, eval_every=2, checkpoint_every=2, device="cpu",
    schedule="constant",
)  # fmt: skip


def run(shards, out, **changes):
    return pretrain(shards, out, train=dataclasses.replace(TRAIN, **changes))


def logged(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def wandb(monkeypatch):
    """A module of the calls that are made, which keeps what it was given."""
    module = types.ModuleType("wandb")
    module.Error, module.runs = type("Error", (Exception,), {}), []

    class Run:
        def __init__(self, **given):
            self.given, self.rows, self.axes, self.finished = given, [], [], False
            module.runs.append(self)

        def define_metric(self, name, step_metric):
            self.axes.append((name, step_metric))

        def log(self, row):
            self.rows.append(row)

        def finish(self):
            self.finished = True

    module.init = lambda **given: Run(**given)
    module.Settings = lambda **given: given
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_the_csv_has_the_rows_of_the_log_also_after_a_resume(shard_folder, tmp_path):
    run(shard_folder, tmp_path, csv=True, steps=2)
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("3,0.1")  # cut off by a crash
    run(shard_folder, tmp_path, csv=True)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = logged(tmp_path)
    assert [int(row["step"]) for row in rows] == [1, 2, 3, 4]
    assert [float(row["train/loss"]) for row in rows] == [line["loss"] for line in lines]
    assert [bool(row["held_out/loss"]) for row in rows] == [False, True, False, True]
    assert float(rows[-1]["timing/tokens_per_second"]) > 0
    assert rows[0]["train/z_loss"] == rows[0]["timing/mfu"] == ""


def test_wandb_gets_the_figures_and_a_resume_continues_with_its_run(shard_folder, tmp_path, wandb):
    run(shard_folder, tmp_path / "out", wandb=True, steps=2)
    run(shard_folder, tmp_path / "out", wandb=True)
    first, second = wandb.runs
    assert [row["step"] for row in first.rows + second.rows] == [1, 2, 3, 4]
    losses = [row["train/loss"] for row in first.rows + second.rows]
    assert losses == [line["loss"] for line in logged(tmp_path / "out")]
    assert first.given["id"] == second.given["id"] and first.given["resume"] == "allow"
    assert first.given["config"]["train"]["steps"] == 2 and first.given["name"] == "out"
    assert first.given["dir"] == str(tmp_path / "out")
    assert first.axes == [("*", "step")] and first.finished and second.finished
    run(shard_folder, tmp_path / "other", wandb=True, steps=1)
    assert wandb.runs[2].given["id"] != first.given["id"]


def test_wandb_offline_writes_beside_the_run(shard_folder, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run(shard_folder, tmp_path, wandb=True, steps=1)
    (record,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"train/loss" in record.read_bytes()


def test_what_wandb_refuses_is_a_one_line_error(shard_folder, tmp_path, wandb):
    def refuse(**given):
        raise wandb.Error("No API key configured. Use `wandb login` to log in.\nmore")

    wandb.init = refuse
    with pytest.raises(LlmcurateError, match=r"wandb login.*Or set WANDB_MODE=offline") as caught:
        run(shard_folder, tmp_path, wandb=True)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


def test_a_missing_package_is_reported_before_anything_is_written(
    shard_folder, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(LlmcurateError, match="wandb is not installed: pip install wandb") as caught:
        run(shard_folder, tmp_path / "none", wandb=True)
    assert caught.value.exit_code == 2 and not (tmp_path / "none").exists()
