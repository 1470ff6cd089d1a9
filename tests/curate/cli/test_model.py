from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from curate.cli.app import whole_app


def run(*arguments):
    return CliRunner().invoke(whole_app(), ["model", *arguments])


def test_a_preset_is_shown_with_what_it_costs():
    out = run("show", "tiny", "--gpu", "H100", "--rows", "2", "--context", "64")
    assert out.exit_code == 0
    for line in ("tiny: 2.36 M parameters", "GQA 3:1, full", "Training memory (2 rows of 64"):
        assert line in out.stdout
    assert "fits in the 80.0 GB of one H100" in out.stdout
    for part in (
        "Serving memory (weights: bf16 4.72 MB, 8 bit",
        "of 32 texts",
        "GQA 3:1, this model",
    ):
        assert part in out.stdout


def test_show_prints_the_figures_of_a_preset_as_json():
    out = run("show", "tiny", "--rows", "1", "--context", "32", "--vocab", "500", "--json")
    facts = json.loads(out.stdout)
    assert facts["parameters"]["embedding"] == 500 * 192 and "published" not in facts
    assert {operation["bound"] for operation in facts["decoding"]} == {"memory"}
    assert facts["serving"]["contexts"] == [8, 16, 32]
    assert set(facts["serving"]["most"]) == {"bf16", "8 bit", "4 bit"}


def test_presets_are_listed():
    lines = run("list").stdout.splitlines()
    assert len(lines) > 50
    assert any("mistral-7b" in line and "window 4096" in line for line in lines)
    assert {preset["name"] for preset in json.loads(run("list", "--json").stdout)} >= {
        "tiny",
        "124m",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "llama3-8"], "llama3-8b"),
        (["show", "tiny", "--gpu", "K80"], "choose one of H200"),
        (["show", "tiny", "--precision", "fp4"], "--precision"),
        (["show", "tiny", "--optimizer", "sgd"], "--optimizer"),
    ],
)
def test_an_unknown_preset_is_a_one_line_error(arguments, message):
    out = run(*arguments)
    assert message in str(out.exception)
    assert getattr(out.exception, "exit_code", None) == 2


def test_a_published_preset_shows_its_shape_its_training_and_its_compute():
    out = run("show", "llama-7b", "--rows", "1", "--context", "64").stdout
    lines = {tuple(line.split(maxsplit=1)) for line in out.splitlines() if line.strip()}
    assert ("lr", "0.0003") in lines and ("weight_decay", "0.1") in lines
    assert ("source", "Touvron et al. 2023a, table 2 and section 2.3") in lines
    assert ("feed-forward", "SwiGLU, 2.69 x hidden") in lines
    assert "hidden per layer  128" in out
    assert "Compute, 6 x parameters x tokens (6.74 B and 1.00 T): 4.0e+22 FLOP" in out
    facts = json.loads(run("show", "llama-7b", "--tokens", "2e9", "--json").stdout)
    assert facts["training_flops"] == 6 * facts["parameters"]["total"] * 2e9
    assert facts["published"]["lr"] == 3e-4
