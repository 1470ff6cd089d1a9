"""`llmcurate pretrain` with a time, tokens or a depth: the plan is printed, kept and replayed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from curate.cli.app import invoke
from curate.cli.training import vocabulary_size
from curate.products.pretraining import PretrainProduct
from llmcurate.base.disk.sealed_json import unseal
from train import dial
from train.config import RunBudget

SMALL = ["--rows", "2", "--context", "32"]


@pytest.fixture(autouse=True)
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "TRIAL_SECONDS", 0.02)


def weights(out: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(out.glob("checkpoints/*/model.safetensors"))]


def test_a_plan_is_printed_with_reasons_kept_and_replayed_to_the_same_bytes(
    shard_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    command = ["pretrain", str(shard_folder), *SMALL]
    assert invoke([*command, "-o", str(first), "--tokens", "1k"]) == 0
    said = capsys.readouterr().err
    plan = unseal(json.loads((first / "plan.json").read_bytes()))
    assert plan["train"]["schedule"] == "wsd" and plan["train"]["rows"] == 2
    for name, value, reason in plan["reasons"]:
        line = f"pretrain: {name:<9}  {value}; {reason}"
        assert line in said and len(line) <= 80
    assert invoke([*command, "-o", str(second), "--plan", str(first / "plan.json")]) == 0
    assert weights(first) == weights(second) != []
    assert invoke([*command, "-o", str(first), "--tokens", "1k"]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_documents_are_encoded_first_and_all_is_in_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, news = tmp_path / "model", tmp_path / "news.jsonl"
    texts = (f"The river rose by {n} metres. Boats number {n * n} left." for n in range(60))
    news.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    command = ["pretrain", str(news), "-o", str(out), *SMALL, "--depth", "1", "--steps", "2"]
    assert invoke([*command, "--vocab", "280"]) == 0
    assert json.loads((out / "manifest.json").read_text())["vocab_size"] == 280
    assert invoke(["generate", "The", "--model", str(out), "--device", "cpu"]) == 0
    assert invoke(["evaluate", str(out), "--on", str(news), "--device", "cpu"]) == 0
    capsys.readouterr()
    assert invoke([*command, "--vocab", "280"]) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("megabytes", "tokens"), [(0, 4096), (9, 4096), (10, 8192), (999, 16384), (100_000, 32768)]
)
def test_a_larger_corpus_gets_a_larger_vocabulary(
    megabytes: int, tokens: int, tmp_path: Path
) -> None:
    with (tmp_path / "texts.jsonl").open("wb") as file:
        file.truncate(megabytes * 1_000_000)
    assert vocabulary_size(tmp_path) == tokens


def test_a_run_that_has_shards_names_them(
    shard_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "shards").symlink_to(shard_folder)
    assert invoke(["pretrain", str(run), "-o", str(tmp_path / "model")]) == 2
    assert "name " in capsys.readouterr().err


def test_a_run_whose_folder_holds_its_shards_is_trained_on_them(
    shard_folder: Path, tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "model"
    shutil.copytree(shard_folder, run)
    (run / "run.json").write_text("{}")
    command = ["pretrain", str(run), "-o", str(out), *SMALL, "--depth", "1", "--steps", "1"]
    assert invoke(command) == 0
    assert not (out / "manifest.json").exists()  # which shards made here would have


def test_a_killed_run_goes_on_by_its_plan_not_by_a_new_trial(
    shard_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    command = ["pretrain", str(shard_folder), *SMALL, "--depth", "1", "--steps", "60"]
    command += ["--checkpoint-every", "5"]
    line = [sys.executable, "-m", "llmcurate", *command, "-o", str(out), "-q"]
    run = subprocess.Popen(line, env=os.environ | {"OMP_NUM_THREADS": "1"})
    limit = time.monotonic() + 120
    while not list(out.glob("checkpoints/step-*")) and time.monotonic() < limit:
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.wait()
    planned = (out / "plan.json").read_bytes()
    monkeypatch.setattr(dial, "Dial", None)  # a new search would fail
    assert invoke([*command, "-o", str(out), "-q"]) == 0
    assert (out / "plan.json").read_bytes() == planned
    monkeypatch.undo()
    replayed = ["pretrain", str(shard_folder), "--plan", str(out / "plan.json"), "-q"]
    assert invoke([*replayed, "-o", str(whole)]) == 0
    assert weights(whole)[-1] == weights(out)[-1]


def test_processes_share_one_plan(shard_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["pretrain", str(shard_folder), "--tokens", "1k", *SMALL, "-q"]
    two = ["--set", "pretrain.processes=2", "--set", "pretrain.device=cpu"]
    assert invoke([*command, *two, "-o", str(out)]) == 0
    assert json.loads((out / "train.json").read_bytes())["timing"]["processes"] == 2


def test_a_dry_run_plans_and_writes_nothing(
    shard_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["pretrain", str(shard_folder), "-o", str(tmp_path / "out"), "--depth", "2"]
    assert invoke([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "2 layers of 128" in said and "as given" in said and "operations" in said
    assert not (tmp_path / "out").exists()


def test_five_minutes_are_the_default_unless_a_model_or_steps_are_known() -> None:
    assert PretrainProduct()._budget() == RunBudget(time="5m")
    assert PretrainProduct(**{"model.attention.window": 64})._budget() == RunBudget(time="5m")
    assert PretrainProduct(rows=8, lr=0.1)._budget() == RunBudget(time="5m")
    known = ({"steps": 3}, {"stages": [{"steps": 3}]}, {"model": "tiny"}, {"plan": "plan.json"})
    for settings in (*known, {"objective": "classify"}):
        assert PretrainProduct(**settings)._budget() is None
    assert PretrainProduct(model="tiny", time="1h")._budget() == RunBudget(time="1h")


def test_the_recipe_that_is_kept_has_the_budget_and_nothing_that_the_plan_decides() -> None:
    kept = PretrainProduct(shards="shards", rows=8).resolved()
    assert kept == {"shards": "shards", "rows": 8, "time": "5m"}
    assert PretrainProduct(**kept).resolved() == kept
    deep = {"shards": "shards", "depth": 3, "time": None}
    assert PretrainProduct(shards="shards", depth=3).resolved() == deep
    assert PretrainProduct(plan="plan.json").resolved() == {"plan": "plan.json"}
    assert PretrainProduct(model="tiny").resolved()["steps"] == 400


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--for", "soon"], "--for soon: give a time, such as 30m"),
        (["--for", "5m", "--tokens", "1k"], "give time or tokens"),
        (["--for", "5m", "--steps", "3"], "give steps, or a time or tokens"),
        (["--depth", "3", "--model", "tiny"], "give depth or model"),
        (["--plan", "nowhere.json"], "nowhere.json: no such plan"),
        (["--plan", "nowhere.json", "--for", "5m"], "give a plan, or a budget and a model"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    options: list[str],
    words: str,
    shard_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert invoke(["pretrain", str(shard_folder), "-o", str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert words in said
    assert not (tmp_path / "out" / "checkpoints").exists()
