"""`llmcurate model compare`: variants trained alike, and how far they differ."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from curate.cli.app import invoke
from curate.lab.evaluate.models import ModelComparison, variant_of
from llmcurate.base.errors import LlmcurateError, UsageError
from train.config import TrainConfig
from train.evaluate.compare import Budget, Variant, compare
from train.evaluate.paired import Mean, interval_of_mean
from train.runs.metrics import read_lines

TRAIN = TrainConfig(
    rows=2, context=32, warmup=0, eval_tokens=256, log_every=1, device="cpu", keep_checkpoints=1
)
SMALL = {"layers": 1, "hidden": 32, "feed_forward.width": 16}
PLAIN = Variant(name="plain", changes=SMALL)
WIDE = Variant(name="wide", changes=SMALL | {"feed_forward.width": 64})
SAME = replace(PLAIN, name="same")


@pytest.fixture(scope="module")
def figures(shard_folder, tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("compare")
    budget = Budget(tokens=5 * 64 + 3)
    found = compare(shard_folder, out, [PLAIN, SAME, WIDE], train=TRAIN, budget=budget, seeds=2)
    return out, found


def test_all_read_as_many_tokens_and_equal_ones_do_not_differ(figures):
    plain, same, wide = figures[1].variants
    assert [row.steps for row in (plain, same, wide)] == [5, 5, 5]
    assert plain.tokens == 320
    assert plain.parameters == same.parameters < wide.parameters
    assert same.held_out_loss_difference.values == [0.0, 0.0]
    assert plain.held_out_loss_difference is None
    assert any(wide.held_out_loss_difference.values)


def test_differences_are_seed_by_seed(figures):
    plain, _, wide = figures[1].variants
    pairs = zip(wide.runs, plain.runs, strict=True)
    by_hand = [a.held_out_loss - b.held_out_loss for a, b in pairs]
    difference = wide.held_out_loss_difference
    assert difference.values == by_hand
    assert difference.mean == pytest.approx(np.mean(by_hand))
    assert difference.interval == interval_of_mean(by_hand)


def test_the_curve_is_the_mean_of_the_seeds(figures):
    out, found = figures
    logs = [read_lines(out / "wide" / f"seed-{seed}" / "metrics.jsonl") for seed in (0, 1)]
    expected = [np.mean([a["loss"], b["loss"]]) for a, b in zip(*logs, strict=True)]
    tokens, losses = zip(*found.variants[2].curve, strict=True)
    assert tokens == (64, 128, 192, 256, 320)
    assert losses == pytest.approx(expected)


def test_what_is_done_is_not_done_again(figures, shard_folder):
    out, found = figures
    begun, stepped = [], []
    again = compare(
        shard_folder, out, [PLAIN, SAME, WIDE], train=TRAIN, budget=Budget(tokens=323), seeds=2,
        on_run=lambda name, seed: begun.append((name, seed)), on_progress=stepped.append,
    )  # fmt: skip
    assert again == found
    assert len(begun) == 6 and stepped == []


def test_at_equal_operations_a_wider_model_takes_fewer_steps(shard_folder, tmp_path):
    found = compare(
        shard_folder, tmp_path, [PLAIN, WIDE], train=TRAIN, budget=Budget(flops=4e7), seeds=1
    )
    plain, wide = found.variants
    assert plain.steps > wide.steps > 1
    for row in (plain, wide):
        step = row.flops_per_token * 64
        assert 0 <= 4e7 - row.flops < step
    assert wide.held_out_loss.interval is None


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ([PLAIN, PLAIN], "variant plain is given twice"),
        ([replace(PLAIN, name="../a")], "a name has letters"),
        ([PLAIN, Variant(name="bert", model="bert-tiny")], r"bert learns [\w-]+ and plain causal"),
        ([Variant(name="odd", changes={"layer": 1})], "odd: model: unknown setting 'layer'"),
    ],
)
def test_models_that_cannot_be_compared_are_refused_before_training(
    variants, message, shard_folder, tmp_path
):
    with pytest.raises(LlmcurateError, match=message):
        compare(shard_folder, tmp_path / "out", variants, train=TRAIN, budget=Budget(tokens=64))
    assert not (tmp_path / "out").exists()


def test_intervals_of_a_mean_use_students_t():
    assert interval_of_mean([1.0]) is None
    low, high = interval_of_mean([1.0, 2.0, 3.0])
    half = 4.302653 * 1.0 / 3**0.5  # the table's 0.975 quantile of 2 degrees of freedom
    assert (low, high) == pytest.approx((2 - half, 2 + half))


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9), st.floats(-1e3, 1e3))
def test_an_interval_moves_with_its_values(values, by):
    low, high = interval_of_mean(values)
    assert low <= np.mean(values) + 1e-9 and np.mean(values) - 1e-9 <= high
    assert interval_of_mean([v + by for v in values]) == pytest.approx(
        [low + by, high + by], abs=1e-6
    )


def test_variants_are_presets_settings_or_files(tmp_path):
    assert variant_of("tiny") == Variant(name="tiny", model="tiny")
    mine = variant_of("mine=30m,feed_forward=my.py:Mine,model.layers=2,norm.first=true")
    changes = {"feed_forward": "my.py:Mine", "layers": 2, "norm.first": True}
    assert mine == Variant(name="mine", model="30m", changes=changes)
    path = tmp_path / "windows.yaml"
    path.write_text("preset: 30m\nattention: {window: 64}\n")
    expected = Variant(name="windows", model="30m", changes={"attention.window": 64})
    assert variant_of(str(path)) == expected
    with pytest.raises(UsageError, match="write KEY=VALUE after the preset, not 'layers'"):
        variant_of("tiny,layers")


def test_a_verdict_needs_an_interval_on_one_side():
    def row(name, interval=None):
        return SimpleNamespace(name=name, held_out_loss_difference=Mean(0.0, interval, []))

    others = [row("a", [0.1, 0.2]), row("b", [-0.2, -0.1]), row("c", [-0.1, 0.1]), row("d")]
    assert ModelComparison(SimpleNamespace(variants=[row("x"), *others])).verdicts() == [
        "a: worse than x",
        "b: better than x",
        "c: no difference from x beyond that between seeds",
        "d: one seed cannot show if this is chance; use more seeds",
    ]


def test_the_command_writes_a_table_a_page_and_json(shard_folder, tmp_path, capsys):
    out = tmp_path / "out"
    line = ["model", "compare", "tiny", "slim=tiny,layers=1", "--shards", str(shard_folder)]
    line += ["-o", str(out), "--tokens", "128", "--seeds", "1", "--context", "32", "--rows", "2"]
    line += ["--set", "model.hidden=32", "--set", "model.layers=2", "--device", "cpu", "--quiet"]
    assert invoke(line) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^slim +\d.* \+?-?\d\.\d{4} ", printed, re.MULTILINE)
    found = json.loads((out / "comparison.json").read_text())
    assert [row["changes"]["layers"] for row in found["variants"]] == [2, 1]
    page = (out / "comparison.html").read_text()
    assert "slim" in page and 'aria-label="loss by tokens"' in page
    assert invoke([*line, "--flops", "1e9"]) == 2
    assert "give either --tokens or --flops" in capsys.readouterr().err
