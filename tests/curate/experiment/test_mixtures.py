"""`llmcurate mix search`: what a text is made of comes out, runs stay, mistakes are a line."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from curate.cli.app import invoke
from curate.cli.model_settings import MixSearch
from curate.experiment import runs
from curate.experiment.mixture_page import commands, render, text
from curate.experiment.mixtures import search_mixture
from curate.experiment.runs import Place
from tests.curate.experiment.small_experiments import SETS, Here, write

ALPHABETS = {"greek": "αβγδεζηθ", "latin": "abcdefgh", "digits": "12345678"}
CHOSEN = {"tokens": 1000, "total": 3000, "runs": 6, "rows": 2, "context": 32}
CHOSEN |= {"vocab": 280, "regression": "linear", "max_epochs": 4.0}


def words(alphabet: str, seed: int, count: int = 60) -> str:
    """Words of an alphabet's letters."""
    draw = random.Random(f"{alphabet} {seed}")
    return " ".join("".join(draw.choices(ALPHABETS[alphabet], k=4)) for _ in range(count))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """{source: path}, and a text of Latin words with some Greek ones."""
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("inputs")
    sources = {
        name: write(folder / f"{name}.jsonl", [words(name, n) for n in range(20)])
        for name in ALPHABETS
    }
    mixed = ["latin"] * 6 + ["greek"] * 2
    texts = [words(name, 100 + n) for n, name in enumerate(mixed)]
    return sources, write(folder / "mixed.jsonl", texts, " ")


@pytest.fixture
def trained(monkeypatch):
    """The names of runs that are trained, in this process; those that are there are passed over."""
    names: list[str] = []
    trial = __import__("train.judge.trials", fromlist=["run_trial"])
    run = trial.run_trial

    def counting(one, out, *rest):
        if not (one.folder(out) / "train.json").is_file():
            names.append(one.name)
        return run(one, out, *rest)

    monkeypatch.setattr(trial, "run_trial", counting)
    monkeypatch.setattr(runs, "open_engine", Here())
    return names


def search(sources, texts, out, weights=None, **changes):
    chosen = MixSearch.of({**CHOSEN, **changes})
    place = Place(quiet=True, workers=1)
    return search_mixture(sources, texts, weights or {}, out, chosen, SETS, place)


def two(inputs):
    return {name: inputs[0][name] for name in ("greek", "latin")}


def test_the_text_asks_for_its_own_source_and_a_source_that_comes_keeps_runs(
    inputs, trained, tmp_path
):
    first = search(two(inputs), {"mixed": inputs[1]}, tmp_path)
    assert len(trained) == 6
    shares = first["mixtures"]["optimum"]["shares"]
    assert shares["latin"] > first["mixtures"]["natural"]["shares"]["latin"]
    assert first["mixtures"]["optimum"]["predicted"] < first["mixtures"]["natural"]["predicted"]

    trained.clear()
    more = search(two(inputs), {"mixed": inputs[1]}, tmp_path, runs=8)
    assert len(trained) == 2
    assert [p["run"] for p in more["points"][:6]] == [p["run"] for p in first["points"]]

    trained.clear()
    three = search(inputs[0], {"mixed": inputs[1]}, tmp_path, runs=4)
    scored = {p["run"]: p["bits_per_byte"] for p in more["points"]}
    kept = [point for point in three["points"] if point["run"] in scored]
    assert len(kept) == 8 and all(point["shares"]["digits"] == 0 for point in kept)
    assert all(p["bits_per_byte"] == pytest.approx(scored[p["run"]]) for p in kept)
    assert sorted(trained) == sorted({p["run"] for p in three["points"]} - set(scored))
    assert 3 <= len(trained) <= 4 and not any(p["earlier"] for p in three["points"][:4])
    assert three["tokenizer"]["sha256"] == first["tokenizer"]["sha256"]

    trained.clear()
    weighted = search(
        two(inputs),
        {"a": inputs[1], "b": inputs[0]["digits"]},
        tmp_path,
        weights={"a": 3, "b": 1},
        confirm=2,
    )
    assert len(trained) == 4  # other texts are scored by the runs that are there
    assert len(weighted["points"]) == 8  # not those that read a third source
    for point in weighted["points"]:
        pooled = 0.75 * point["texts"]["a"] + 0.25 * point["texts"]["b"]
        assert point["bits_per_byte"] == pytest.approx(pooled)
    confirmed = weighted["confirmed"]
    assert confirmed["seeds"] == [1, 2] and len(confirmed["difference"]["values"]) == 2
    gain = confirmed["optimum"] - confirmed["natural"]
    assert gain == pytest.approx(confirmed["difference"]["mean"])

    lines, page = text(weighted), render(weighted)
    for part in ("held-out error", "rank correlation", "trained from 2 seeds", "at most 4 epochs"):
        assert part in lines
    assert re.search(r"machine: .*1 thread a run, PyTorch", lines) and "seed 0" in lines
    assert page.count("<svg") == 1 and "could not be drawn" not in page


def test_caps_hold_and_what_is_printed_is_taken_by_mix_and_pretrain(
    inputs, trained, tmp_path, capsys
):
    out = tmp_path / "out"
    figures = search(two(inputs), {"mixed": inputs[1]}, out, runs=4, total=25000, max_epochs=3)
    epochs = figures["mixtures"]["optimum"]["epochs"]
    assert max(epochs.values()) <= 3 * 1.001
    mix, run = (shlex.split(line) for line in commands(figures, str(out)))
    assert mix[:2] == ["llmcurate", "mix"]
    mix[mix.index("mixed")] = str(tmp_path / "mixed")
    assert invoke([*mix[1:], "-q", "--nearest"]) == 0
    mixed = json.loads((tmp_path / "mixed" / "run.json").read_text())
    rows = {r["name"]: r["share"] for r in mixed["products"][0]["mix"]["rows"]}
    for name, share in figures["mixtures"]["optimum"]["shares"].items():
        assert rows[name] == pytest.approx(share, abs=0.03)
    recipe = yaml.safe_load((out / "mixture.yaml").read_text())
    assert sum(s["weight"] for s in recipe["steps"][0]["pretrain"]["sources"]) == 10_000
    run[run.index("model")] = str(tmp_path / "model")
    sets = [f"--set=pretrain.{s}" for s in (*SETS[:-1], "steps=2", "rows=2", "context=32")]
    run = [word for word in run[1:] if word not in ("--set", "pretrain.steps=N")]
    assert invoke([*run, *sets, "-q"]) == 0, capsys.readouterr().err
    assert list(Path(tmp_path / "model").rglob("train.json"))


def test_shards_of_one_tokenizer_are_taken_as_they_are(inputs, trained, tmp_path, capsys):
    first = search(two(inputs), {"mixed": inputs[1]}, tmp_path / "a", runs=4)
    shards = {s["name"]: s["shards"] for s in first["sources"]}
    again = search(shards, {"mixed": inputs[1]}, tmp_path / "b", runs=4)
    bits = [[p["bits_per_byte"] for p in figures["points"]] for figures in (first, again)]
    assert bits[0] == bits[1] and again["eval"]["mixed"]["overlap"] is None
    assert commands(again)[0].startswith("--weights greek=")

    trained.clear()
    other = search(two(inputs), {"mixed": inputs[1]}, tmp_path / "c", runs=4, vocab=270)
    shards["latin"] = next(s["shards"] for s in other["sources"] if s["name"] == "latin")
    words = [f"{name}={path}" for name, path in shards.items()]
    command = ["mix", "search", *words, "--eval", f"m={inputs[1]}", "--tokens=99", "--total=99"]
    assert invoke([*command, "-q", "-o", str(tmp_path / "d")]) == 2
    error = capsys.readouterr().err
    assert "were encoded by different tokenizers" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{latin}"], "two sources or more"),
        (["{latin}", "{latin}"], "two sources are called"),
        (["{latin}", "{greek}", "--eval-weights", "x=1"], "m is in one of them alone"),
        (["{latin}", "{greek}", "--total", "1e9"], "--max-epochs"),
        (["{latin}", "{greek}", "--engine", "slurm"], "local or ray"),
        (["{latin}", "{greek}", "--runs", "2"], "--runs 2"),
        (["{latin}", "{greek}", "--set", "c4.x=1"], "c4.x=1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_use_is_one_line(inputs, trained, arguments, message, tmp_path, capsys):
    filled = [argument.format(**inputs[0]) for argument in arguments]
    options = ["--eval", f"m={inputs[1]}", "--tokens", "100", "--vocab", "280"]
    options += [] if "--total" in arguments else ["--total", "100"]
    command = ["mix", "search", *filled, *options, "-q", "-o", str(tmp_path / "out")]
    assert invoke(command) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_command_writes_its_figures_and_a_page(inputs, trained, tmp_path, capsys):
    out = tmp_path / "out"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in CHOSEN.items()]
    words = [f"{name}={path}" for name, path in two(inputs).items()]
    sets = [f"--set={setting}" for setting in SETS]
    command = ["mix", "search", *words, "--eval", f"mixed={inputs[1]}", *options, *sets, "--json"]
    assert invoke([*command, "--runs=4", "--workers=1", "-q", "-o", str(out)]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures == json.loads((out / "mixtures.json").read_text())
    assert (out / "mixtures.html").is_file() and len(figures["points"]) == 4
