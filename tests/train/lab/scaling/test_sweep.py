"""A sweep: sizes trained at budgets, resumed, and fitted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from curate.api.model_settings import ScalingRun
from curate.cli.app import invoke
from curate.lab.scaling import run_sweep, sweep_lines
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import change
from tests.curate.experiment.small_experiments import Here
from tests.llmcurate.base.pages.structure import check_structure
from train.lab.scaling.fit import Sweep
from train.lab.scaling.sweep import ladder
from train.measure.accounting import non_embedding, parameters
from train.model.presets import preset

GIVEN = {"rows": 2, "context": 32, "device": "cpu", "sizes": "32x1,64x1,96x1"}
SETS = ["pretrain.warmup=0", "pretrain.eval_tokens=256"]


def run(shards, out, engine=None, **chosen):
    """(the contents of sweep.json, the number of runs that were made)."""
    torch.set_num_threads(1)
    engine = engine or Here()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("curate.experiment.runs.open_engine", engine)
        run_sweep(shards, out, ScalingRun.of(**GIVEN | chosen), SETS, True, True)
    return Sweep.from_json((out / "sweep.json").read_text()), engine.made


@pytest.fixture(scope="module")
def figures(shard_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep")
    return out, run(shard_folder, out, flops="2e8,1e8")[0]


def test_a_size_keeps_the_shape_of_the_preset():
    base = preset("tiny")
    small, same = (change(base, own, "model") for own in ladder("96x2,192x4").values())
    assert same == base
    assert (small.hidden, small.layers, small.attention.heads) == (96, 2, 3)
    assert small.attention.kv_heads == 1 and small.attention.head_dim == 32
    assert small.feed_forward.width == 256
    assert non_embedding(small) == parameters(small) - 96 * base.vocab
    with pytest.raises(UsageError, match="size 96x2 is given twice"):
        ladder("96x2,96x2")


def test_runs_of_a_budget_cost_as_much_and_larger_models_read_less(figures):
    points = figures[1].points
    assert len(points) == 6
    for budget, own in ((1e8, points[:3]), (2e8, points[3:])):
        for point in own:
            step = point.flops / point.tokens * 64
            assert 0 <= budget - point.flops < step
        tokens = [point.tokens for point in own]
        assert tokens == sorted(tokens, reverse=True) and len(set(tokens)) == 3


def test_a_sweep_row_shows_the_epochs_of_its_run(figures, shard_folder):
    there = json.loads((shard_folder / "manifest.json").read_text())["tokens"]
    _, *rows = sweep_lines(figures[1])[:7]
    for row, point in zip(rows, figures[1].points, strict=True):
        assert point.epochs == pytest.approx(point.tokens / there, rel=0.2)
        assert f"{point.epochs:.3g}" in row.split()


def test_repeated_text_does_not_count_as_unique_tokens(shard_folder, tmp_path):
    once, often = run(shard_folder, tmp_path, sizes="32x1", tokens="64,6400")[0].points
    assert once.unique_tokens == once.tokens == 64
    summary = json.loads((tmp_path / "tokens-6400" / "32x1" / "seed-0" / "train.json").read_text())
    assert often.unique_tokens == pytest.approx(summary["train_tokens"], rel=0.02)
    assert often.unique_tokens < often.tokens == 6400


def test_a_part_of_the_corpus_is_read_again_and_scored_on_the_same_text(shard_folder, tmp_path):
    more = {"tokens": "64,640", "unique_tokens": "64,150", "seeds": 2}
    figures, made = run(shard_folder, tmp_path, sizes="32x1", **more)
    runs = ["tokens-64", "tokens-640", "tokens-640-unique-64", "tokens-640-unique-150"]
    assert made == 8 and sorted(path.name for path in tmp_path.glob("tokens*")) == sorted(runs)
    amounts = [(point.tokens, point.seed) for point in figures.points]
    assert amounts == [(tokens, seed) for tokens in (64, 640, 640, 640) for seed in (0, 1)]
    unique = [point.unique_tokens for point in figures.points]
    assert unique[:4] == [64, 64, 640, 640]
    for own, least in zip(unique[4:], (64, 64, 150, 150), strict=True):
        assert least <= own < least + 130  # and its last document
    for seed in (0, 1):
        summaries = [
            json.loads((tmp_path / run / "32x1" / f"seed-{seed}" / "train.json").read_text())
            for run in runs
        ]
        assert len({each["held_out_documents"] for each in summaries}) == 1
        assert len({each["scored_tokens"] for each in summaries}) == 1
    read_once = [curve.losses[-1][0] for curve in figures.curves]
    assert read_once == [point.flops for point in figures.points[:4:2]]
    assert figures.train["unique_tokens"] is None


def test_a_sweep_stopped_and_begun_again_has_the_same_figures(figures, shard_folder, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(shard_folder, tmp_path, Here(stop=4), flops="2e8,1e8")
    again, made = run(shard_folder, tmp_path, flops="2e8,1e8")

    def untimed(figures):
        points = [replace(point, seconds=0) for point in figures.points]
        return replace(figures, seconds=0, points=points)

    assert made == 2 and untimed(again) == untimed(figures[1])
    assert run(shard_folder, tmp_path, flops="2e8,1e8") == (again, 0)


@pytest.mark.slow
def test_the_commands_train_a_sweep_and_fit_it(shard_folder, tmp_path, capsys):
    out = tmp_path / "sweep"
    line = ["scaling", "run", str(shard_folder), "-o", str(out), "--tokens", "64,128,192"]
    line += ["--sizes", "32x1,64x1,96x1", "--rows", "1", "--context", "32", "--device", "cpu", "-q"]
    assert invoke(line) == 0
    printed = capsys.readouterr().out
    assert "9 runs" in printed and "of training on" in printed
    before = (out / "sweep.json").read_bytes()
    assert invoke(line) == 0
    assert (out / "sweep.json").read_bytes() == before
    capsys.readouterr()
    assert invoke(["scaling", "fit", str(out), "--resamples", "20"]) == 0
    printed = capsys.readouterr().out
    assert "9 points" in printed and "3: parametric" in printed and "alpha_n" in printed
    written = json.loads((out / "scaling.json").read_text())
    assert set(written["approaches"]["3: parametric"]["law"]) == {"e", "a", "b", "alpha", "beta"}
    page = (out / "scaling.html").read_text()
    check_structure(page)
    assert "could not be drawn" not in page
    assert 'aria-label="loss by operations"' in page and "measured loss by predicted loss" in page
    assert invoke(["scaling", "plan", "--flops", "1e12", "--fit", str(out)]) == 0
    assert "fit, approach 3: parametric" in capsys.readouterr().out
    repeated = [*line[:6], "64,192", "--unique-tokens", "64", *line[7:]]
    assert invoke(repeated) == 0 and "9 runs" in capsys.readouterr().out
    assert invoke([*line, "--unique-tokens", "few"]) == 2
    assert "--unique-tokens few: give numbers separated by commas" in capsys.readouterr().err
    assert invoke([*line, "--set", "read.limit=3"]) == 2
    assert "no section 'read'" in capsys.readouterr().err
