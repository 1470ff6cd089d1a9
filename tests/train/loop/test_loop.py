"""A step: micro-batches, clipping, precision, recomputation, averages, logs."""

from __future__ import annotations

import dataclasses
import json
import sys
import types

import pytest
import torch
from safetensors.torch import load_file

from llmcurate.base.errors import LlmcurateError
from tests.train.data.feed_settings import TWO_LAYERS
from train.config import Stage, TrainConfig
from train.generate import load
from train.loop.pretrain import pretrain
from train.measure.describe import gpu, peak_of
from train.model.decoder import Decoder
from train.objective_settings import Prefix
from train.optim.optimizers import Average
from train.runs.checkpoint import best, checkpoint_to_use, choice_line, complete, load_state

TRAIN = TrainConfig(
    steps=6, rows=4, context=32, warmup=3, eval_every=3, checkpoint_every=3, device="cpu"
)


def run(shards, out, **changes):
    torch.set_num_threads(1)
    return pretrain(shards, out, model=TWO_LAYERS, train=dataclasses.replace(TRAIN, **changes))


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def losses(out):
    return [line["loss"] for line in lines(out)]


def weights(out, file="model", step=TRAIN.steps):
    return load_file(out / "checkpoints" / f"step-{step:07d}" / f"{file}.safetensors")


@pytest.fixture(scope="module")
def plain(shard_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("plain")
    run(shard_folder, out)
    return out


def test_micro_batches_are_the_same_step_within_rounding(shard_folder, tmp_path, plain):
    for count in (2, 4):
        out = tmp_path / str(count)
        run(shard_folder, out, accumulate=count)
        assert losses(out) == pytest.approx(losses(plain), abs=1e-5)
        assert [line["tokens"] for line in lines(out)] == [line["tokens"] for line in lines(plain)]
        for name, value in weights(plain).items():
            torch.testing.assert_close(weights(out)[name], value, atol=2e-4, rtol=0, msg=name)


def test_a_prefix_is_read_and_not_scored_and_micro_batches_do_not_change_it(
    shard_folder, tmp_path, plain
):
    run(shard_folder, tmp_path / "one", objective=Prefix())
    run(shard_folder, tmp_path / "two", objective=Prefix(), accumulate=2)
    ours, theirs = lines(tmp_path / "one"), lines(tmp_path / "two")
    assert [line["tokens"] for line in ours] == [line["tokens"] for line in theirs]
    assert ours[-1]["tokens"] < 0.8 * lines(plain)[-1]["tokens"]
    timings = [line["timing"] for line in ours]  # what is read is work, whether scored or not
    read = [timing["tokens_per_second"] * timing["seconds"] for timing in timings]
    assert max(read) == pytest.approx(TRAIN.rows * TRAIN.context)  # the last row of texts is short
    assert sum(read) > 1.25 * ours[-1]["tokens"]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)


def test_dropout_follows_from_seed_and_step_alone(shard_folder, tmp_path, plain):
    torch.set_num_threads(1)
    model = dataclasses.replace(TWO_LAYERS, dropout=0.2)
    for folder, noise in (("a", 1), ("b", 2)):
        torch.manual_seed(noise)
        pretrain(shard_folder, tmp_path / folder, model=model, train=TRAIN)
        assert torch.initial_seed() == noise  # and leaves the generator as it was
    assert losses(tmp_path / "a") == losses(tmp_path / "b") != losses(plain)


def test_recomputed_activations_give_the_same_bits(shard_folder, tmp_path, plain):
    run(shard_folder, tmp_path, recompute=True)
    assert losses(tmp_path) == losses(plain)
    assert all(
        torch.equal(value, weights(plain)[name]) for name, value in weights(tmp_path).items()
    )


def test_a_small_chunk_of_logits_is_the_same_loss_within_rounding(shard_folder, tmp_path, plain):
    run(shard_folder, tmp_path, loss_chunk=17)
    assert losses(tmp_path) == pytest.approx(losses(plain), abs=1e-4)


def test_bf16_is_near_and_fp32_is_what_a_cpu_takes_by_itself(shard_folder, tmp_path, plain):
    run(shard_folder, tmp_path / "bf16", precision="bf16")
    run(shard_folder, tmp_path / "fp32", precision="fp32")
    assert losses(tmp_path / "fp32") == losses(plain)
    assert losses(tmp_path / "bf16") != losses(plain)
    assert losses(tmp_path / "bf16") == pytest.approx(losses(plain), abs=0.05)
    assert {value.dtype for value in weights(tmp_path / "bf16").values()} == {torch.float32}


def test_the_gradient_is_clipped_and_its_norm_before_that_logged(shard_folder, tmp_path, plain):
    from train.data.shards import read_shards
    from train.loop.distributed import Ranks
    from train.loop.start import make_plan
    from train.loop.training import Run

    settings = dataclasses.replace(TRAIN, clip=0.01)
    plan, data = make_plan(shard_folder, TWO_LAYERS, settings)
    (tmp_path / "checkpoints").mkdir()
    training = Run(plan, data, tmp_path, Ranks(device=torch.device("cpu")))
    loss, _, norm, tokens, read = training.stepper.step(0, 1e-3).values.tolist()
    assert loss == losses(plain)[0] and norm == lines(plain)[0]["grad_norm"]
    assert tokens == read == lines(plain)[0]["tokens"] and norm > 0.01
    clipped = torch.stack([p.grad.square().sum() for p in training.model.parameters()]).sum().sqrt()
    assert float(clipped) == pytest.approx(0.01, rel=1e-3)
    assert read_shards(shard_folder).fingerprint == plan.shards


def test_the_log_does_not_depend_on_how_often_it_is_written(shard_folder, tmp_path, plain):
    run(shard_folder, tmp_path, log_every=1)
    ours, theirs = lines(tmp_path), lines(plain)
    for line in (*ours, *theirs):
        assert line.pop("timing")["flops_per_second"] > 0
    assert ours == theirs


def test_z_loss_is_logged_and_pulls_the_normaliser_to_zero(shard_folder, tmp_path, plain):
    run(shard_folder, tmp_path, z_loss=0.1)
    log = lines(tmp_path)
    assert all("z_loss" not in line for line in lines(plain))
    assert log[0]["loss"] == losses(plain)[0] and log[-1]["loss"] != losses(plain)[-1]
    assert 0 < log[-1]["z_loss"] < log[0]["z_loss"]


def test_the_average_follows_its_rule_and_is_what_is_scored_and_generated_with(
    shard_folder, tmp_path, plain
):
    summary = run(shard_folder, tmp_path, ema=0.9, checkpoint_every=1, keep_checkpoints=9)
    assert losses(tmp_path) == losses(plain)  # it does not act on training
    expected = Decoder(TWO_LAYERS)
    expected.initialise(TRAIN.seed)
    average = {name: value.clone() for name, value in expected.state_dict().items()}
    for step in range(TRAIN.steps):
        decay = min(0.9, (1 + step) / (10 + step))
        for name, value in weights(tmp_path, step=step + 1).items():
            average[name] = decay * average[name] + (1 - decay) * value
    for name, value in weights(tmp_path, "average").items():
        torch.testing.assert_close(value, average[name], msg=name)
    assert summary["held_out_loss"] != lines(plain)[-1]["held_out"]["loss"]
    opened = load(tmp_path)[0].state_dict()
    assert all(torch.equal(opened[n], v) for n, v in weights(tmp_path, "average").items())


def test_an_average_swapped_in_is_restored_after_an_error():
    model = Decoder(TWO_LAYERS)
    model.initialise(1)
    average = Average(model, 0.5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for weight in average.weights.values():
        weight.zero_()
    with pytest.raises(RuntimeError), average.swapped():
        assert not any(value.any() for value in model.state_dict().values())
        raise RuntimeError
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_checkpoints_written_beside_training_are_the_same(shard_folder, tmp_path, plain):
    run(shard_folder, tmp_path, async_checkpoints=True)
    for file in ("model", "optimizer"):
        for step in (3, 6):
            theirs = weights(plain, file, step)
            for name, value in weights(tmp_path, file, step).items():
                assert torch.equal(value, theirs[name]), (file, step, name)


@pytest.mark.parametrize("beside", [False, True], ids=["at once", "beside training"])
def test_a_full_disk_stops_the_run_in_a_line_and_leaves_what_was_whole(
    shard_folder, tmp_path, monkeypatch, beside
):
    import train.runs.checkpoint as checkpoint

    plain = checkpoint.write_tensors

    def full(path, tensors):
        if "step-0000006" in str(path):
            raise OSError(28, "No space left on device")
        plain(path, tensors)

    monkeypatch.setattr(checkpoint, "write_tensors", full)
    with pytest.raises(
        LlmcurateError, match=r"step-0000006: cannot be written .*No space"
    ) as caught:
        run(shard_folder, tmp_path, async_checkpoints=beside)
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-0000003"]


@pytest.mark.parametrize(
    ("name", "lr"), [("adamw", 1e-2), ("muon", 1e-2), ("adafactor", 0.1), ("lion", 3e-3)]
)
def test_every_optimizer_learns(shard_folder, tmp_path, name, lr):
    summary = run(shard_folder, tmp_path, optimizer=name, lr=lr, steps=40, weight_decay=0.01)
    assert summary["last_loss"] < 0.7 * summary["first_loss"]


def test_the_best_checkpoint_by_held_out_loss_stays(shard_folder, tmp_path):
    changes = {"steps": 8, "eval_every": 2, "checkpoint_every": 2, "keep_checkpoints": 1}
    summary = run(shard_folder, tmp_path, **changes, lr=1.0, warmup=6, schedule="constant")
    scores = {
        line["step"]: line["held_out"]["loss"] for line in lines(tmp_path) if "held_out" in line
    }
    first = min(scores, key=lambda step: (scores[step], step))
    assert first < 8  # at a rate of 1 it gets worse
    assert [int(path.name[5:]) for path in complete(tmp_path / "checkpoints")] == [first, 8]
    assert best(complete(tmp_path / "checkpoints")).name == f"step-{first:07d}"
    assert summary["best_checkpoint"] == f"checkpoints/step-{first:07d}"
    assert checkpoint_to_use(tmp_path).name == f"step-{first:07d}"
    assert (
        checkpoint_to_use(tmp_path, "last").name == "step-0000008"
        and choice_line(tmp_path, "last") is None
    )
    assert choice_line(tmp_path).startswith(f"using checkpoint step {first} (held-out loss ")
    run(shard_folder, tmp_path / "newest", **changes, keep_best=False)
    assert [path.name for path in complete(tmp_path / "newest" / "checkpoints")] == ["step-0000008"]


def test_the_checkpoint_to_use_is_the_best_of_the_last_stage(shard_folder, tmp_path):
    stages = (Stage(steps=4, lr=1e-3), Stage(steps=4, lr=2.0, schedule="constant"))
    changes = {"stages": stages, "steps": 8, "eval_every": 2, "checkpoint_every": 2}
    run(shard_folder, tmp_path, **changes, keep_checkpoints=9)
    checkpoints = complete(tmp_path / "checkpoints")
    assert best(checkpoints).name <= "step-0000004" < checkpoint_to_use(tmp_path).name
    assert checkpoint_to_use(tmp_path) == best(checkpoints[2:])


def test_the_checkpoint_before_wsds_decay_stays(shard_folder, tmp_path):
    changes = {"schedule": "wsd", "decay": 0.3, "steps": 10, "checkpoint_every": 2}
    run(shard_folder, tmp_path, **changes, keep_checkpoints=1, keep_best=False)
    checkpoints = complete(tmp_path / "checkpoints")
    assert [load_state(path).step for path in checkpoints] == [7, 10]


def test_tensorboard_gets_the_figures_or_a_missing_package_is_reported_first(
    shard_folder, tmp_path, monkeypatch
):
    written = []

    class Writer:
        def __init__(self, folder, purge_step):
            assert folder == str(tmp_path / "out" / "tensorboard") and purge_step == 1

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def close(self):
            written.append("closed")

    board = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    run(shard_folder, tmp_path / "out", tensorboard=True)
    expected = [
        ("train/loss", loss, step + 1) for step, loss in enumerate(losses(tmp_path / "out"))
    ]
    assert [scalar for scalar in written if scalar[0] == "train/loss"] == expected
    assert [scalar[2] for scalar in written if scalar[0] == "held_out/bits_per_byte"] == [3, 6]
    assert written[-1] == "closed"
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(LlmcurateError, match="pip install tensorboard") as caught:
        run(shard_folder, tmp_path / "none", tensorboard=True)
    assert caught.value.exit_code == 2 and not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"precision": "fp8"}, "precision is 'fp8': choose one of auto, fp32, bf16"),
        ({"parallel": "tp"}, "parallel is 'tp'"),
        ({"spike": "ignore"}, "spike is 'ignore'"),
        ({"accumulate": 3}, "rows is 4: it must be a multiple of accumulate"),
        ({"ema": 1.0}, "ema is 1"),
        ({"log_every": 0}, "log_every is 0"),
        ({"z_loss": -1.0}, "z_loss is -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, message):
    with pytest.raises(LlmcurateError, match=message) as caught:
        dataclasses.replace(TRAIN, **change)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("NVIDIA B200", 2250e12),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA L40", None),
        ("Quadro", None),
        ("", None),
    ],
)
def test_peak_flops_are_those_of_the_data_sheet_or_unknown(name, flops):
    entry = gpu(name)
    assert (entry and entry.flops) == flops


def test_a_cpu_has_no_peak_and_so_no_share_of_it(plain):
    assert peak_of(torch.device("cpu")) is None
    assert all("mfu" not in line["timing"] for line in lines(plain))
