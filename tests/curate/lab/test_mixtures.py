"""`llmcurate mix search`: what a text is made of comes out, runs stay, mistakes are a line."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")
if find_spec("sklearn") is None:  # importing it takes seconds
    pytest.skip("could not import 'sklearn'", allow_module_level=True)

from curate.api.model_settings import MixSearch
from curate.cli.app import invoke
from curate.experiment import runs
from curate.lab.mixtures import search_mixture
from curate.run.records import Options
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import json_values
from tests.curate.experiment.small_experiments import SETS, Here, write
from train.loop import pretrain as training

ALPHABETS = {"greek": "αβγδεζηθ", "latin": "abcdefgh", "digits": "12345678"}
CHOSEN = {"tokens": 1000, "total": 3000, "runs": 4, "rows": 2, "context": 32}
CHOSEN |= {"vocab": 280, "regression": "linear", "max_epochs": 4.0, "eval_excerpt": 70}


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
    run = training.pretrain

    def counting(shards, folder, **settings):
        if not (folder / "train.json").is_file():
            names.append(folder.parent.name)
        return run(shards, folder, **settings)

    monkeypatch.setattr(training, "pretrain", counting)
    monkeypatch.setattr(runs, "open_engine", Here())
    return names


def search(sources, texts, out, weights=None, **changes):
    chosen = MixSearch.of(**{**CHOSEN, **changes})
    place = Options(quiet=True, workers=1)
    return search_mixture(sources, texts, weights or {}, out, chosen, SETS, place)


def two(inputs):
    return {name: inputs[0][name] for name in ("greek", "latin")}


@pytest.fixture(scope="module")
def done(inputs, tmp_path_factory):
    """(figures, OUT) of a search over two sources."""
    out = tmp_path_factory.mktemp("done") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "open_engine", Here())
        return search(two(inputs), {"mixed": inputs[1]}, out), out


def test_the_text_asks_for_its_own_source(done):
    mixtures = done[0].mixtures
    assert mixtures["optimum"].shares["latin"] > mixtures["natural"].shares["latin"]
    assert mixtures["optimum"].predicted < mixtures["natural"].predicted
    assert mixtures["best sampled"].measured == min(point.bits_per_byte for point in done[0].points)


@pytest.mark.slow
def test_more_runs_another_source_and_other_texts_keep_the_runs_that_are_there(
    inputs, done, trained, tmp_path
):
    first, out = done[0], tmp_path / "out"
    shutil.copytree(done[1], out)
    more = search(two(inputs), {"mixed": inputs[1]}, out, runs=5)
    assert len(trained) == 1
    assert [p.run for p in more.points[:4]] == [p.run for p in first.points]

    trained.clear()
    three = search(inputs[0], {"mixed": inputs[1]}, out)
    scored = {p.run: p.bits_per_byte for p in more.points}
    kept = [point for point in three.points if point.run in scored]
    assert len(kept) == 5 and all(point.shares["digits"] == 0 for point in kept)
    assert all(p.bits_per_byte == pytest.approx(scored[p.run]) for p in kept)
    assert sorted(trained) == sorted({p.run for p in three.points} - set(scored))
    assert 3 <= len(trained) <= 4 and not any(p.earlier for p in three.points[:4])
    assert three.tokenizer.sha256 == first.tokenizer.sha256

    trained.clear()
    texts, weights = {"a": inputs[1], "b": inputs[0]["digits"]}, {"a": 3, "b": 1}
    weighted = search(two(inputs), texts, out, weights, confirm=2)
    assert len(trained) == 4  # of the confirmation
    assert len(weighted.points) == 5  # not those that read a third source
    for point in weighted.points:
        pooled = 0.75 * point.texts["a"] + 0.25 * point.texts["b"]
        assert point.bits_per_byte == pytest.approx(pooled)
    confirmed = weighted.confirmed
    assert confirmed.seeds == [1, 2] and len(confirmed.difference.values) == 2
    gain = confirmed.optimum - confirmed.natural
    assert gain == pytest.approx(confirmed.difference.mean)
    assert "trained from 2 seeds" in weighted.text()


def test_page_and_lines_say_all_that_decides(done):
    lines, page = done[0].text(), done[0].page()
    for part in ("held-out error", "rank correlation", "at most 4 epochs", "seed 0"):
        assert part in lines
    assert re.search(r"machine: .*1 thread per run, PyTorch", lines)
    assert "the optimum is predicted by the regression linear" in lines
    doubtful = {n: replace(e, predicts=False) for n, e in done[0].regressions.items()}
    doubtful_lines = replace(done[0], regressions=doubtful).text()
    assert "neither regression ranks mixtures better than chance" in doubtful_lines
    assert page.count("<svg") == 1 and "could not be drawn" not in page


def test_epoch_caps_hold_and_mix_and_pretrain_accept_the_printed_commands(
    inputs, done, trained, tmp_path, capsys
):
    out = tmp_path / "out"
    shutil.copytree(done[1], out)
    figures = search(two(inputs), {"mixed": inputs[1]}, out, total=25000, max_epochs=3)
    assert not trained
    assert max(figures.mixtures["optimum"].epochs.values()) <= 3 * 1.001
    mix, run = (shlex.split(line) for line in figures.commands())
    assert mix[:2] == ["llmcurate", "mix"]
    mix[mix.index("mixed")] = str(tmp_path / "mixed")
    assert invoke([*mix[1:], "-q", "--nearest"]) == 0
    mixed = json.loads((tmp_path / "mixed" / "run.json").read_text())
    rows = {r["name"]: r["share"] for r in mixed["products"][0]["mix"]["rows"]}
    for name, share in figures.mixtures["optimum"].shares.items():
        assert rows[name] == pytest.approx(share, abs=0.03)
    recipe = yaml.safe_load((out / "mixture.yaml").read_text())
    assert sum(s["weight"] for s in recipe["steps"][0]["pretrain"]["sources"]) == 10_000
    run[run.index("model")] = str(tmp_path / "model")
    sets = [f"--set=pretrain.{s}" for s in (*SETS[:-1], "steps=2", "rows=2", "context=32")]
    run = [word for word in run[1:] if word not in ("--set", "pretrain.steps=N")]
    assert invoke([*run, *sets, "-q"]) == 0, capsys.readouterr().err
    assert list(Path(tmp_path / "model").rglob("train.json"))


def test_token_shards_are_refused_in_a_line(inputs, done, tmp_path):
    shards = {source.name: source.shards for source in done[0].sources}
    with pytest.raises(UsageError, match="is token shards: give the documents"):
        search(shards, {"mixed": inputs[1]}, tmp_path)


def test_another_vocabulary_needs_another_folder(inputs, done):
    with pytest.raises(UsageError, match="of 280 tokens: give --vocab 280, or another folder"):
        search(two(inputs), {"mixed": inputs[1]}, done[1], vocab=270)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{latin}"], "give two sources or more"),
        (["{latin}", "{latin}"], "two sources are called"),
        (["{latin}", "{greek}", "--on-weights", "x=1"], "m must be in both"),
        (["{latin}", "{greek}", "--total", "1e9"], "--max-epochs"),
        (["{latin}", "{greek}", "--engine", "slurm"], "local or ray"),
        (["{latin}", "{greek}", "--runs", "2"], "--runs is 2: give 4 or more"),
        (["{latin}", "{greek}", "--set", "c4.x=1"], "c4.x=1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_use_is_a_one_line_error(inputs, trained, arguments, message, tmp_path, capsys):
    filled = [argument.format(**inputs[0]) for argument in arguments]
    options = ["--on", f"m={inputs[1]}", "--tokens", "100", "--vocab", "280"]
    options += [] if "--total" in arguments else ["--total", "100"]
    command = ["mix", "search", *filled, *options, "-q", "-o", str(tmp_path / "out")]
    assert invoke(command) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_command_writes_its_figures_and_a_page(inputs, done, trained, capsys):
    options = [f"--{name.replace('_', '-')}={value}" for name, value in CHOSEN.items()]
    words = [f"{name}={path}" for name, path in two(inputs).items()]
    sets = [f"--set={setting}" for setting in SETS]
    command = ["mix", "search", *words, "--on", f"mixed={inputs[1]}", *options, *sets, "--json"]
    assert invoke([*command, "--workers=1", "-q", "-o", str(done[1])]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures == json.loads((done[1] / "mixtures.json").read_text())
    assert figures["mixtures"] == json_values(done[0])["mixtures"] and not trained
    assert (done[1] / "mixtures.html").is_file()
