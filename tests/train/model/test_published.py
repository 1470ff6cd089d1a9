"""The training of a published preset is that of its paper, unless settings say otherwise."""

from __future__ import annotations

import dataclasses

import pytest

from train.config import TrainConfig
from train.loop import memory
from train.model.presets import OWN, PRESETS, TRAININGS, preset
from train.optim.optimizers import OPTIMIZERS
from train.optim.schedules import SCHEDULES
from train.recipe import as_published
from train.runs.plan import Plan

# As printed: lr, and millions of tokens in a step (tables 2.1 of Brown et al. 2020, 1 of Zhang et
# al. 2022, 2 of Touvron et al. 2023a, 1 of Bai et al. 2023; sections 2.2 and 4.2 of the others).
PRINTED = {
    "gpt3-125m": ("6.0e-4", 0.5),
    "gpt3-350m": ("3.0e-4", 0.5),
    "gpt3-760m": ("2.5e-4", 0.5),
    "gpt3-1.3b": ("2.0e-4", 1),
    "gpt3-2.7b": ("1.6e-4", 1),
    "gpt3-6.7b": ("1.2e-4", 2),
    "gpt3-13b": ("1.0e-4", 2),
    "gpt3-175b": ("0.6e-4", 3.2),
    "opt-125m": ("6.0e-4", 0.5),
    "opt-350m": ("3.0e-4", 0.5),
    "opt-1.3b": ("2.0e-4", 1),
    "opt-2.7b": ("1.6e-4", 1),
    "opt-6.7b": ("1.2e-4", 2),
    "opt-13b": ("1.0e-4", 4),
    "opt-30b": ("1.0e-4", 4),
    "opt-66b": ("0.8e-4", 2),
    "opt-175b": ("1.2e-4", 2),
    "llama-7b": ("3.0e-4", 4),
    "llama-13b": ("3.0e-4", 4),
    "llama-33b": ("1.5e-4", 4),
    "llama-65b": ("1.5e-4", 4),
    "llama2-7b": ("3.0e-4", 4),
    "llama2-13b": ("3.0e-4", 4),
    "llama2-70b": ("1.5e-4", 4),
    "llama3.1-405b": ("8e-5", 16),
    "qwen-7b": ("3.0e-4", 4),
    "qwen-14b": ("3.0e-4", 4),
    "olmo-1b": ("4.0e-4", 4),
    "olmo-7b": ("3.0e-4", 4),
    "gpt-neox-20b": ("0.97e-4", 3.15),
}
# Tokens of the whole training, in billions.
READ = {
    **dict.fromkeys((n for n in PRINTED if n.startswith(("gpt3", "opt"))), 300),
    **{"llama-7b": 1000, "llama-13b": 1000, "llama-33b": 1400, "llama-65b": 1400},
    **{"llama2-7b": 2000, "llama2-70b": 2000, "qwen-7b": 2400, "qwen-14b": 3000},
    **{"olmo-1b": 3100, "olmo-7b": 2000, "bloom-176b": 366, "bloom-7b1": 341},
}
# Weight decay, as far as it is stated. Qwen's is that of its fine-tuning.
DECAYS = {
    **{"gpt1": 0.01, "gpt2": None, "gpt3-175b": 0.1, "gptj-6b": 0.1, "gpt-neox-20b": 0.01},
    **{"bloom-176b": 0.1, "opt-175b": 0.1, "llama-7b": 0.1, "qwen-14b": 0.1, "olmo-7b": 0.1},
    **{"deepseek-67b": 0.1, "palm-540b": None},
}
# The same of encoders and encoder-decoders: decay, rows of a step, steps of the warm-up, lr.
OTHERS = {
    "transformer-base": (0.0, 49, 4000, 7e-4),
    "transformer-big": (0.0, 49, 4000, 4.9e-4),
    "bert-base": (0.01, 256, 10_000, 1e-4),
    "bert-large": (0.01, 256, 10_000, 1e-4),
    "roberta-base": (0.01, 8192, 24_000, 6e-4),
    "roberta-large": (0.01, 8192, 30_000, 4e-4),
    "albert-xxlarge": (None, 4096, None, None),
    "wangchanberta": (0.01, 4092, 24_000, 3e-4),
    "t5-base": (0.0, 2048, 10_000, 0.01),
    "mt5-xxl": (0.0, 1024, 10_000, 0.01),
    "bart-large": (None, 8000, None, None),
}


@pytest.mark.parametrize("name", PRINTED)
def test_rate_and_batch_are_the_printed_ones(name):
    own, (rate, millions) = TRAININGS[name], PRINTED[name]
    assert own.lr == float(rate)
    # The printed millions are 2 ** 20, or rounded.
    assert own.rows * own.context / 1e6 == pytest.approx(millions, rel=0.05)


@pytest.mark.parametrize("name", READ)
def test_a_run_reads_as_many_tokens_as_the_paper_says(name):
    assert TRAININGS[name].tokens / 1e9 == pytest.approx(READ[name], rel=0.001)


@pytest.mark.parametrize("name", [n for n in PRINTED if n.startswith(("gpt3", "opt"))])
def test_the_warm_up_of_gpt3_and_its_kin_takes_375_million_tokens(name):
    own = TRAININGS[name]
    if name == "opt-175b":
        assert own.warmup == 2000
    else:
        assert own.warmup * own.rows * own.context == pytest.approx(375e6, rel=0.01)


@pytest.mark.parametrize("name", DECAYS)
def test_the_weight_decay_is_the_stated_one(name):
    assert TRAININGS[name].weight_decay == DECAYS[name]


@pytest.mark.lab
@pytest.mark.parametrize("name", OTHERS)
def test_encoders_and_encoder_decoders_have_their_own(name):
    own = TRAININGS[name]
    decay, rows, warmup, lr = OTHERS[name]
    assert (own.weight_decay, own.rows, own.warmup) == (decay, rows, warmup)
    assert (own.lr is None and lr is None) or own.lr == pytest.approx(lr, rel=0.01)


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_fits_its_preset_and_our_settings(name):
    own, config = TRAININGS[name], preset(name)
    assert own.source and name not in OWN and not name.endswith("tiny")
    TrainConfig(**own.values)
    assert own.optimizer in (None, *OPTIMIZERS) and own.schedule in (None, *SCHEDULES)
    longest = config.context if config.position.table else float("inf")
    assert own.context is None or own.context <= longest
    assert own.warmup is None or own.steps is None or own.warmup < own.steps


@pytest.mark.lab
def test_dropout_is_the_published_one():
    """Those without a statement of the paper have that of the released config.json, or none."""
    stated = {"transformer-base": 0.1, "transformer-big": 0.3, "bert-base": 0.1, "gpt1": 0.1}
    stated |= {"roberta-large": 0.1, "t5-11b": 0.1, "t5.1.1-xl": 0.0, "mt5-xl": 0.0}
    stated |= {"bart-large": 0.1, "opt-175b": 0.1, "albert-xxlarge": 0.0, "wangchanberta": 0.1}
    stated |= {"llama-7b": 0.0, "qwen-14b": 0.0, "gpt3-175b": 0.0, "palm-540b": 0.0}
    assert {name: preset(name).dropout for name in stated} == stated


def test_what_is_given_stays_and_the_rest_is_the_papers():
    whole = as_published("llama-7b", {"weight_decay": 0.2, "seed": 3}, changed=False)
    assert whole == TRAININGS["llama-7b"].values | {"weight_decay": 0.2, "seed": 3}


@pytest.mark.parametrize("given", [{"steps": 20}, {"rows": 8}, {"context": 64}, {"stages": ()}])
def test_who_gives_a_size_has_no_batch_of_millions_of_tokens(given):
    whole = as_published("llama-7b", given, changed=False)
    assert not {"rows", "context", "steps"} & ({*whole} - {*given})
    assert (whole["lr"], whole["weight_decay"]) == (3e-4, 0.1)
    steps = given.get("steps", TrainConfig.steps)
    assert whole["warmup"] == max(1, round(steps * 2000 / TRAININGS["llama-7b"].steps))


def test_a_changed_model_is_trained_in_small_batches_too():
    assert "rows" not in as_published("llama-7b", {}, changed=True)


def test_without_a_published_number_of_steps_a_tenth_is_warm_up():
    whole = as_published("gpt1", {}, changed=False)
    assert (whole["warmup"], whole["rows"], "steps" in whole) == (40, 64, False)
    assert as_published("gpt1", {"steps": 50_000}, changed=False)["warmup"] == 2000


def test_another_optimizer_takes_no_rate_of_the_published_one():
    whole = as_published("llama-7b", {"optimizer": "muon"}, changed=False)
    assert not {"lr", "beta1", "beta2", "weight_decay"} & {*whole}
    assert whole["schedule"] == "cosine"


@pytest.mark.parametrize("objective", ["chat", "classify", {"kind": "pairs"}])
def test_fine_tuning_has_no_values_of_pretraining(objective):
    given = {"objective": objective}
    assert as_published("llama-7b", given, changed=False) == given


def test_models_without_a_published_training_stay_as_they_are():
    for name in (*OWN, "a/folder", None, "mistral-7b"):
        assert as_published(name, {"seed": 1}, changed=False) == {"seed": 1}
    assert {*TRAININGS} <= {*PRESETS}


def test_a_line_names_source_values_and_what_differs():
    own = TRAININGS["gpt3-175b"]
    used = {**dataclasses.asdict(TrainConfig()), **own.values, "lr": 0.001}
    line = own.line("gpt3-175b", used)
    assert line.startswith("gpt3-175b (Brown et al. 2020, table 2.1 and appendix B), as published:")
    assert "other than published: lr 0.001 (6e-05);" in line
    assert "not stated there" not in line
    assert "not stated there: optimizer, lr, " in TRAININGS["palm-8b"].line("palm-8b", used)


@pytest.mark.parametrize(("gigabytes", "at_once"), [(8, 4), (1, 1)])
def test_a_published_batch_is_read_in_parts_that_fit_the_machine(monkeypatch, gigabytes, at_once):
    monkeypatch.setattr(memory, "memory_of", lambda device: gigabytes * 10**9)
    batch = TrainConfig(rows=256, context=2048, device="cpu")
    parts = memory.in_parts("gpt3-125m", batch, 1)
    assert (parts.rows, parts.context, 256 // parts.accumulate) == (256, 2048, at_once)
    assert dataclasses.replace(parts, accumulate=1) == batch

    def peak(rows):  # of that many at once, by an estimate of their own
        part = dataclasses.replace(batch, rows=rows)
        plan = Plan(model=preset("gpt3-125m", context=2048), train=part, shards="")
        return memory.step_memory(plan, "cpu", 1).peak / (memory.SAFE * gigabytes * 1e9)

    if gigabytes > 1:  # in one not even a row fits
        assert peak(at_once) < 1 < peak(2 * at_once)
