"""The signature test: a run killed and resumed ends with the same bits as one never stopped."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from llmcurate.base.disk.sealed_json import unseal
from llmcurate.base.errors import LlmcurateError
from tests.train.data.feed_settings import TWO_LAYERS
from train.config import TrainConfig
from train.loop.pretrain import pretrain
from train.model.config import ModelConfig
from train.runs.checkpoint import complete

TRAIN = TrainConfig(
    steps=12,
    rows=4,
    context=32,
    warmup=3,
    eval_every=5,
    checkpoint_every=3,
    log_every=1,
    device="cpu",
)

VARIANTS = {
    "muon, average, micro-batches, written beside": {
        **{"optimizer": "muon", "ema": 0.9, "accumulate": 2, "async_checkpoints": True},
        **{"log_every": 4, "z_loss": 1e-3},
    },
    "adafactor, wsd": {"optimizer": "adafactor", "lr": 0.05, "schedule": "wsd", "recompute": True},
    "lion, bf16, dropout": {
        "optimizer": "lion",
        "lr": 3e-4,
        "precision": "bf16",
        "spike": "skip",
        "dropout": 0.1,
    },
}


def train_and_die(
    shards: Path, out: Path, when: str, plan: TrainConfig, model: ModelConfig
) -> None:
    """Train, and be killed: at the end of a step, or between or within the files of a save."""
    import train.runs.checkpoint as checkpoint

    torch.set_num_threads(1)

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def progress(line: dict) -> None:
        if when == f"step {line['step']}":
            kill()

    plain, saves = checkpoint.write_tensors, []

    def write_tensors(path: Path, tensors: dict) -> None:
        plain(path, tensors)
        saves.append(path)
        if when == f"save {len(saves)}":
            os.truncate(path, path.stat().st_size // 2)
            kill()

    rename = Path.replace

    def killing_rename(self: Path, target: Path) -> Path:
        if when == "rename" and "step-0000006" in str(target):
            kill()
        return rename(self, target)

    checkpoint.write_tensors, Path.replace = write_tensors, killing_rename
    pretrain(shards, out, model=model, train=plan, on_progress=progress)


def run(
    shards: Path, out: Path, when: str, plan: TrainConfig = TRAIN, model: ModelConfig = TWO_LAYERS
) -> int:
    """``train_and_die`` in a new process; its exit status."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["train.loop.pretrain", "torch._dynamo"]
    )  # an optimizer needs that
    process = context.Process(target=train_and_die, args=(shards, out, when, plan, model))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def result(out: Path) -> dict:
    """All that a run must reproduce: weights, optimiser state, logged numbers, the sample."""
    last = out / "checkpoints" / f"step-{TRAIN.steps:07d}"
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["timing"]
    summary = unseal(json.loads((out / "train.json").read_bytes()))
    del summary["timing"]
    return {
        "tensors": {
            f"{path.name} {name}": tensor
            for path in sorted(last.glob("*.safetensors"))
            for name, tensor in load_file(path).items()
        },
        "metrics": lines,
        "summary": summary,
        "sample": (out / "sample.txt").read_bytes(),
    }


def same(a: dict, b: dict) -> bool:
    assert a["tensors"].keys() == b["tensors"].keys()
    for name, tensor in a["tensors"].items():
        assert torch.equal(tensor, b["tensors"][name]), name
    return all(a[kind] == b[kind] for kind in ("metrics", "summary", "sample"))


@pytest.fixture(scope="module", autouse=True)
def short_samples():
    """Whole ones, as other processes write them."""


@pytest.fixture(scope="module")
def straight(shard_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("straight") / "out"
    torch.set_num_threads(1)
    pretrain(shard_folder, out, model=TWO_LAYERS, train=TRAIN)
    return result(out)


SLOW = pytest.mark.slow  # what stands beside them says the same of another moment or optimiser


@pytest.mark.parametrize(
    "when",
    [
        pytest.param("step 1", marks=SLOW),
        "step 7",
        pytest.param("save 3", marks=SLOW),
        pytest.param("save 6", marks=SLOW),
        "rename",
    ],
)
def test_killed_and_resumed_equals_never_stopped_bit_for_bit(
    shard_folder, tmp_path, straight, when
):
    out = tmp_path / "out"
    assert run(shard_folder, out, when) == -signal.SIGKILL
    assert not (out / "train.json").exists()
    pretrain(shard_folder, out, model=TWO_LAYERS, train=TRAIN)
    assert same(result(out), straight)
    assert not list((out / "checkpoints").glob(".*"))


@SLOW
@pytest.mark.parametrize("name", VARIANTS)
def test_killed_and_resumed_equals_never_stopped_for_every_optimiser_and_state(
    shard_folder, tmp_path, name
):
    torch.set_num_threads(1)
    changes = dict(VARIANTS[name])
    model = dataclasses.replace(TWO_LAYERS, dropout=changes.pop("dropout", 0.0))
    plan = dataclasses.replace(TRAIN, **changes)
    pretrain(shard_folder, tmp_path / "straight", model=model, train=plan)
    files = 3 if plan.ema else 2
    for when in ("step 4", f"save {files + 2}"):
        out = tmp_path / when
        assert run(shard_folder, out, when, plan, model) == -signal.SIGKILL
        pretrain(shard_folder, out, model=model, train=plan)
        assert same(result(out), result(tmp_path / "straight"))


def test_another_process_gives_the_same_bits(shard_folder, tmp_path, straight):
    assert run(shard_folder, tmp_path / "out", "never") == 0
    assert same(result(tmp_path / "out"), straight)


def test_a_line_cut_off_by_a_crash_is_written_again(shard_folder, tmp_path, straight):
    out = tmp_path / "out"
    run(shard_folder, out, "step 7")
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "lo')
    pretrain(shard_folder, out, model=TWO_LAYERS, train=TRAIN)
    assert same(result(out), straight)


def test_a_finished_run_returns_at_once(shard_folder, tmp_path):
    out, lines = tmp_path / "out", []
    first = pretrain(shard_folder, out, model=TWO_LAYERS, train=TRAIN)
    again = pretrain(shard_folder, out, model=TWO_LAYERS, train=TRAIN, on_progress=lines.append)
    assert again == first and lines == []


def test_only_the_newest_checkpoints_stay(shard_folder, tmp_path):
    plan = dataclasses.replace(TRAIN, keep_checkpoints=2, steps=10)
    pretrain(shard_folder, tmp_path, model=TWO_LAYERS, train=plan)
    names = [path.name for path in complete(tmp_path / "checkpoints")]
    assert names == ["step-0000009", "step-0000010"]


def test_other_settings_are_refused_by_name(shard_folder, tmp_path):
    pretrain(shard_folder, tmp_path, model=TWO_LAYERS, train=TRAIN)
    with pytest.raises(LlmcurateError, match=r"lr: 0\.001, not 0\.003"):
        plan = dataclasses.replace(TRAIN, lr=1e-3)
        pretrain(shard_folder, tmp_path, model=TWO_LAYERS, train=plan)
    harmless = dataclasses.replace(TRAIN, checkpoint_every=7, device="auto")
    pretrain(shard_folder, tmp_path, model=TWO_LAYERS, train=harmless)


@pytest.mark.parametrize("schedule", ["constant", "inverse-sqrt", "wsd"])
def test_more_steps_go_on_as_if_planned_so_from_the_start(shard_folder, tmp_path, schedule):
    longer = dataclasses.replace(TRAIN, schedule=schedule, decay=0.25, eval_every=4)
    short = dataclasses.replace(longer, steps=8, checkpoint_every=2)
    pretrain(shard_folder, tmp_path / "straight", model=TWO_LAYERS, train=longer)
    pretrain(shard_folder, tmp_path / "out", model=TWO_LAYERS, train=short)
    if schedule == "wsd":  # its decay began at step 7
        with pytest.raises(LlmcurateError, match=r"from step 7 .*wsd.*delete those after step-0+6"):
            pretrain(shard_folder, tmp_path / "out", model=TWO_LAYERS, train=longer)
        for path in complete(tmp_path / "out" / "checkpoints"):
            if path.name > "step-0000006":
                shutil.rmtree(path)
    pretrain(shard_folder, tmp_path / "out", model=TWO_LAYERS, train=longer)
    assert same(result(tmp_path / "out"), result(tmp_path / "straight"))


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_more_steps_are_refused_where_earlier_rates_would_have_been_others(
    shard_folder, tmp_path, schedule
):
    plan = dataclasses.replace(TRAIN, schedule=schedule)
    pretrain(shard_folder, tmp_path, model=TWO_LAYERS, train=plan)
    message = f"made for 12 steps.*schedule {schedule}.*use another output folder"
    with pytest.raises(LlmcurateError, match=message) as caught:
        more = dataclasses.replace(plan, steps=20)
        pretrain(shard_folder, tmp_path, model=TWO_LAYERS, train=more)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "state.json"])
def test_a_damaged_checkpoint_is_named_not_unpickled(shard_folder, tmp_path, straight, name):
    pretrain(shard_folder, tmp_path, model=TWO_LAYERS, train=TRAIN)
    damaged = complete(tmp_path / "checkpoints")[-1] / name
    damaged.write_bytes(b"\x80\x04not what it was")
    lines: list[str] = []
    pretrain(shard_folder, tmp_path, model=TWO_LAYERS, train=TRAIN, on_notice=lines.append)
    assert f"step-0000012/{name}: damaged" in lines[0]
    assert "resuming from step-0000009" in lines[0]
    assert same(result(tmp_path), straight)
    for checkpoint in complete(tmp_path / "checkpoints"):
        (checkpoint / name).write_bytes(b"\x80\x04not what it was")
    with pytest.raises(LlmcurateError, match=f"step-0000012/{name}.*delete") as caught:
        pretrain(shard_folder, tmp_path, model=TWO_LAYERS, train=TRAIN)
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)
