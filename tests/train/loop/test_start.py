"""Training that goes on from a model trained before, here or elsewhere."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from safetensors.torch import load_file, save_file

from curate.cli.app import invoke
from llmcurate.base.errors import LlmcurateError
from tests.train.loop.small_runs import build, trained
from tests.train.loop.weights import weights
from train.config import Stage, TrainConfig
from train.hf.export import export
from train.loop.pretrain import pretrain
from train.model.position_settings import RopeScaling
from train.model.presets import preset
from train.runs.checkpoint import complete, load_plan, model_of

TRAIN = TrainConfig(
    steps=4, rows=2, context=32, warmup=0, eval_every=4, eval_tokens=512, checkpoint_every=2,
    log_every=1, device="cpu",
)  # fmt: skip
STILL = dataclasses.replace(TRAIN, steps=1, lr=1e-12)


@pytest.fixture(scope="module")
def run(tmp_path_factory, shard_folder):
    """A model of two layers, as this trainer leaves it."""
    torch.set_num_threads(1)
    model = build(dataclasses.replace(preset("tiny", vocab=300, context=64), layers=2))
    folder = tmp_path_factory.mktemp("start") / "run"
    return trained(folder, model, shard_folder / "tokenizer.json")


def close(a, b):
    return all(torch.allclose(a[name], value, atol=1e-6) for name, value in b.items())


@pytest.mark.parametrize("form", ["ours", "transformers"])
def test_the_first_weights_are_those_of_the_folder(form, run, shard_folder, tmp_path):
    start = run
    if form == "transformers":
        start = tmp_path / "hf"
        export(run, start)
    pretrain(shard_folder, tmp_path / "out", model=str(start), train=STILL)
    assert close(weights(tmp_path / "out"), weights(run))
    plan = load_plan(complete(tmp_path / "out" / "checkpoints")[-1])
    assert plan.model.layers == 2 and len(plan.weights) == 64
    pretrain(shard_folder, tmp_path / "new", model=plan.model, train=STILL)
    assert not close(weights(tmp_path / "new"), weights(run))


def test_a_stopped_run_continues_from_its_checkpoint_not_from_the_start(
    run, shard_folder, tmp_path
):
    class Stop(Exception):
        pass

    def stop(line):
        if line["step"] == 3:
            raise Stop

    pretrain(shard_folder, tmp_path / "whole", model=str(run), train=TRAIN)
    with pytest.raises(Stop):
        pretrain(shard_folder, tmp_path / "out", model=str(run), train=TRAIN, on_progress=stop)
    pretrain(shard_folder, tmp_path / "out", model=str(run), train=TRAIN)
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(value, weights(tmp_path / "out")[name]), name


def test_other_first_weights_are_another_run(run, shard_folder, tmp_path):
    pretrain(shard_folder, tmp_path / "out", model=str(run), train=TRAIN)
    config = load_plan(complete(tmp_path / "out" / "checkpoints")[-1]).model
    with pytest.raises(LlmcurateError, match=r"first weights: random, not [0-9a-f]{12}"):
        more = dataclasses.replace(TRAIN, steps=6, schedule="constant")
        pretrain(shard_folder, tmp_path / "out", model=config, train=more)


def test_tokens_with_other_ids_are_refused_by_name(run, shard_folder, small_tokenizer, tmp_path):
    other = trained(tmp_path / "other", build(preset("tiny", vocab=300)), small_tokenizer)
    with pytest.raises(
        LlmcurateError, match=r"tokenizer.json: token \d+, .* encode the text"
    ) as refusal:
        pretrain(shard_folder, tmp_path / "out", model=str(other), train=TRAIN)
    assert refusal.value.exit_code == 2 and not (tmp_path / "out").exists()


def test_a_folder_without_a_model_is_refused_in_one_line(shard_folder, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    arguments = ["pretrain", str(shard_folder), "-o", str(tmp_path / "out")]
    assert invoke([*arguments, "--model", str(tmp_path / "empty")]) == 2
    assert "empty: no config.json; give a model's folder" in capsys.readouterr().err


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_weights_that_are_gone_or_cut_off_are_named(harm, shard_folder, tmp_path):
    model = build(dataclasses.replace(preset("tiny", vocab=300), layers=1))
    folder = trained(tmp_path / "run", model, shard_folder / "tokenizer.json")
    file = complete(folder / "checkpoints")[-1] / "model.safetensors"
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(LlmcurateError, match=r"run.*cannot be read") as refusal:
        pretrain(shard_folder, tmp_path / "out", model=str(folder), train=TRAIN)
    assert "\n" not in str(refusal.value)


def test_the_command_takes_a_folder_and_other_weights_are_another_run(
    run, shard_folder, tmp_path, capsys
):
    start = tmp_path / "start"
    export(run, start)
    arguments = ["pretrain", str(shard_folder), "-o", str(tmp_path / "out"), "--steps", "1"]
    arguments += ["--model", str(start), "--json"]
    for name in ("context=32", "rows=2", "eval_tokens=256", "device=cpu"):
        arguments += ["--set", f"pretrain.{name}"]
    digests = []
    for times, more in ((1, []), (1, []), (2, ["--restart"])):
        file = start / "model.safetensors"
        save_file({name: value * times for name, value in load_file(file).items()}, file)
        if more:
            assert invoke(arguments) == 2
            assert "was made with model" in capsys.readouterr().err
        assert invoke([*arguments, *more]) == 0
        digests.append(load_plan(complete(tmp_path / "out" / "checkpoints")[-1]).weights)
    assert digests[0] == digests[1] != digests[2]


def test_a_longer_context_is_one_command(run, shard_folder, tmp_path, capsys):
    arguments = ["pretrain", str(shard_folder), "-o", str(tmp_path / "out"), "--steps", "1"]
    arguments += ["--model", str(run), "--context", "256", "--set", "model.position.scaling=yarn"]
    for name in ("rows=2", "eval_tokens=256", "device=cpu"):
        arguments += ["--set", f"pretrain.{name}"]
    assert invoke(arguments) == 0, capsys.readouterr().err
    config = model_of(complete(tmp_path / "out" / "checkpoints")[-1])
    scaling = config.position.scaling
    assert (config.context, scaling.kind) == (256, "yarn")
    assert (scaling.factor, scaling.original_context) == (4.0, 64)


def test_settings_in_which_the_weights_have_no_place_are_refused(run, shard_folder, tmp_path):
    with pytest.raises(LlmcurateError, match=r"do not fit a model with other .*hidden") as refusal:
        pretrain(shard_folder, tmp_path / "out", model=str(run), changes={"hidden": 8}, train=TRAIN)
    assert refusal.value.exit_code == 2 and not (tmp_path / "out").exists()


def test_a_stage_may_change_the_rope_scaling_and_a_stopped_run_resumes_identically(
    shard_folder, tmp_path
):
    class Stop(Exception):
        pass

    def stop(line):
        if line["step"] == 3:
            raise Stop

    longer = RopeScaling(kind="linear", factor=2.0)
    stages = (
        Stage(steps=2, context=16),
        Stage(steps=1, theta=5e5, scaling=longer),
        Stage(steps=1, lr=1e-3),
    )
    staged = dataclasses.replace(TRAIN, stages=stages)
    model = dataclasses.replace(preset("tiny", vocab=300, context=32), layers=1)
    for out in ("whole", "out"):
        if out == "out":
            with pytest.raises(Stop):
                pretrain(shard_folder, tmp_path / out, model=model, train=staged, on_progress=stop)
        pretrain(shard_folder, tmp_path / out, model=model, train=staged)
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(value, weights(tmp_path / "out")[name]), name
    before, after = (model_of(path) for path in complete(tmp_path / "whole" / "checkpoints"))
    assert before == model
    assert (after.position.theta, after.position.scaling) == (5e5, longer)
    plain = dataclasses.replace(staged, stages=(stages[0], Stage(steps=1), stages[2]))
    pretrain(shard_folder, tmp_path / "plain", model=model, train=plain)
    assert not close(weights(tmp_path / "plain"), weights(tmp_path / "whole"))
