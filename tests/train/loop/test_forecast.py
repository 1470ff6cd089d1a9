"""`pretrain --dry-run`: time and memory of a run, before it begins."""

from __future__ import annotations

import dataclasses
import json

import pytest

from curate.cli.app import invoke
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.messages import json_values
from llmcurate.base.settings import change
from train.config import Stage, TrainConfig
from train.loop import memory
from train.loop.forecast import MFU, forecast
from train.loop.pretrain import pretrain
from train.measure.accounting import flops_per_token
from train.measure.describe import find_gpu
from train.model.presets import preset

TRAIN = TrainConfig(
    steps=6, rows=4, context=32, warmup=1, eval_every=3, checkpoint_every=3, device="cpu"
)
SMALL = {"layers": 2}  # of tiny's four


@pytest.fixture(scope="module", autouse=True)
def _measured_once():
    """The memory of the same model and rows is the same in all tests; most of their time is it."""
    known, measure = {}, memory.training_memory

    def measured(model, **settings):
        key = repr((model, settings))
        if key not in known:
            known[key] = measure(model, **settings)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "training_memory", measured)
        yield


def figures(shards, out, **changes):
    processes = changes.pop("processes", 1)
    train = dataclasses.replace(TRAIN, **changes)
    return forecast(shards, out, changes=SMALL, train=train, processes=processes)


def test_a_forecast_has_the_figures_of_the_run_and_writes_nothing(shard_folder, tmp_path):
    out = tmp_path / "out"
    before = figures(shard_folder, out)
    assert not out.exists()
    summary = pretrain(shard_folder, out, changes=SMALL, train=TRAIN)
    assert before.parameters.total == summary["parameters"]
    assert json_values(before.data) == summary["data"]
    assert json_values(before.attention) == summary["attention"]
    assert before.positions == 6 * 4 * 32
    assert before.flops == pytest.approx(before.positions * summary["flops_per_token"])
    assert [(m.device, m.precision) for m in before.memory] == [
        ("cpu", "fp32"),
        ("cuda", "bf16"),
    ]
    after = figures(shard_folder, out)
    assert (after.done, after.flops) == (6, 0)


def test_time_follows_from_the_operations_of_all_stages_and_the_number_of_gpus(
    shard_folder, tmp_path
):
    stages = (Stage(steps=2, context=16, rows=8), Stage(steps=4))
    one = figures(shard_folder, tmp_path, stages=stages)
    model = change(preset("tiny", vocab=300, context=32), SMALL, "model")
    flops = 2 * 8 * 16 * flops_per_token(model, 16) + 4 * 4 * 32 * flops_per_token(model, 32)
    assert one.flops == pytest.approx(flops)
    for gpu in one.gpus:
        assert gpu.seconds == pytest.approx(flops / (MFU * find_gpu(gpu.name).flops))
    two = figures(shard_folder, tmp_path, stages=stages, processes=2)
    assert two.gpus[0].seconds == pytest.approx(one.gpus[0].seconds / 2)
    plain = figures(shard_folder, tmp_path, precision="fp32")
    assert {gpu.seconds for gpu in plain.gpus} == {None}  # of fp32 no peak is known


def test_processes_and_micro_batches_hold_fewer_rows_and_fsdp_a_share_of_the_state(
    shard_folder, tmp_path
):
    def cpu(**changes):
        return figures(shard_folder, tmp_path, **changes).memory[0].memory

    one, two, cut = cpu(), cpu(processes=2), cpu(accumulate=2)
    assert two == cut and two.activations < 0.6 * one.activations
    assert two.weights == one.weights
    split = cpu(processes=2, parallel="fsdp")
    for kind in ("weights", "gradients", "optimizer"):
        assert getattr(split, kind) == getattr(two, kind) // 2
    assert split.peak < two.peak
    assert cpu(ema=0.9).weights == 2 * one.weights


def test_processes_that_share_rows_hold_their_tokens_and_the_keys_and_values_of_all(
    shard_folder, tmp_path
):
    def gpu(**changes):
        return figures(shard_folder, tmp_path, **changes).memory[1].memory

    one = gpu()
    shared = gpu(processes=2, context_parallel=2)
    half = gpu(context=16)
    own = change(preset("tiny", vocab=300, context=32), SMALL, "model")
    others = 4 * 16 * 2 * own.layers * own.attention.kv_heads * own.attention.head_dim * 2
    assert shared.activations - half.activations == others
    assert shared.peak < one.peak
    shared, half = gpu(processes=2, context_parallel=2, recompute=2), gpu(context=16, recompute=2)
    assert shared.activations - half.activations == others // 2


def test_replicas_hold_more_and_processes_that_share_blocks_less(shard_folder, tmp_path):
    def memory(**changes):
        plan = {"processes": 4, "parallel": "fsdp"} | changes
        return [one.memory for one in figures(shard_folder, tmp_path, **plan).memory]

    (sharded, on_gpu), (twice, _) = memory(), memory(replicas=2)
    assert twice.weights == 2 * sharded.weights
    assert twice.activations == sharded.activations
    shared = memory(tensor=2)[0]  # of twice the rows, half of what blocks have
    assert sharded.weights < shared.weights < twice.weights
    assert sharded.activations < shared.activations < 2 * sharded.activations
    away = memory(offload=True)[1]
    assert away.activations == on_gpu.activations <= away.peak < on_gpu.peak


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensor": 3}, "tensor 3: model.attention.kv_heads is 2, which 3 processes cannot share"),
        ({"processes": 4, "tensor": 2}, "set parallel to fsdp"),
        ({"processes": 3}, "3 processes of 1 micro-batches cannot share"),
        ({"attention": "triton"}, "triton"),
        ({"schedule": "cosin"}, "cosin"),
        ({"max_epochs": 0.01}, "max_epochs"),
        ({"lr": 1.0}, "lr: 1.0, not 0.003"),
    ],
)
def test_what_the_run_refuses_is_refused(shard_folder, finished, changes, message):
    with pytest.raises(LlmcurateError, match=message):
        figures(shard_folder, finished, **changes)


@pytest.fixture(scope="module")
def finished(shard_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "out"
    pretrain(shard_folder, out, changes=SMALL, train=TRAIN)
    return out


def test_a_teacher_reads_every_token_and_its_weights_are_there(shard_folder, tmp_path, finished):
    alone = figures(shard_folder, tmp_path)
    taught = figures(shard_folder, tmp_path, teacher=str(finished))
    assert taught.flops == pytest.approx(alone.flops * 4 / 3)  # the same model, forward alone
    for kind in ("weights", "peak"):
        more = getattr(taught.memory[0].memory, kind) - getattr(alone.memory[0].memory, kind)
        assert more == 4 * alone.parameters.total


def test_the_command_says_it_as_text_and_as_json_and_writes_nothing(shard_folder, tmp_path, capsys):
    out = tmp_path / "model"
    command = ["pretrain", str(shard_folder), "-o", str(out), "--steps", "6", "--dry-run"]
    assert invoke(command) == 0
    text = capsys.readouterr().out
    for part in ("1,632,192 parameters", "6 steps of 4 x 256 tokens", "epochs of", "FLOP"):
        assert part in text
    for part in ("CPU, fp32", "GPU, bf16", "peak", "1 GPU at 40 % of the peak", "fits in 141 GB"):
        assert part in text
    assert invoke([*command, "--json", "-q"]) == 0
    (product,) = json.loads(capsys.readouterr().out)["products"]
    assert product["estimate"]["parameters"]["total"] == 1_632_192
    assert invoke([*command, "--rows", "9", "--set", "pretrain.processes=2"]) == 2
    assert "choose a multiple" in capsys.readouterr().err
    assert not out.exists()


def test_the_command_knows_what_it_would_go_on_from(shard_folder, tmp_path, capsys):
    small = ["pretrain", str(shard_folder), "-o", str(tmp_path), "--rows", "2", "--context", "32"]
    small += ["--warmup", "1"]
    assert invoke([*small, "--steps", "2"]) == 0
    capsys.readouterr()
    assert invoke([*small, "--steps", "2", "--dry-run"]) == 0
    assert "2 steps; operations and time are for the rest" in capsys.readouterr().out
    assert invoke([*small, "--steps", "4", "--dry-run"]) == 2  # the cosine was another one
    assert "was made for 2 steps" in capsys.readouterr().err
    other = [*small, "--steps", "4", "--lr", "0.01", "--dry-run"]
    assert invoke(other) == 2 and "--restart" in capsys.readouterr().err
    assert invoke([*other, "--restart"]) == 0
    assert "to come" not in capsys.readouterr().out and (tmp_path / "checkpoints").exists()
