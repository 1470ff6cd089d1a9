"""`llmcurate compare`: planted differences are found, a placebo shows none, runs resume."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from curate.cli.app import invoke
from curate.experiment.evaluation import Overlap
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.messages import json_values
from tests.curate.experiment.small_experiments import (
    CHOSEN,
    SETS,
    Here,
    experiment,
    letters,
    sentences,
    without_cost,
    write,
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """(a corpus of text, one of letters, an evaluation text with two documents of the first)."""
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("inputs")
    clean = [sentences(n) for n in range(40)]
    news = [sentences(1000 + n, 3) for n in range(10)] + clean[:2]
    return (
        write(folder / "clean.jsonl", clean),
        write(folder / "noise.jsonl", [letters(n) for n in range(30)]),
        write(folder / "news.jsonl", news, "xy"),
    )


@pytest.fixture(scope="module")
def done(inputs, tmp_path_factory):
    """(figures, OUT, the number of runs that were made) of an experiment that is not stopped."""
    clean, noise, news = inputs
    out = tmp_path_factory.mktemp("done") / "out"
    engine = Here()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("curate.experiment.runs.open_engine", engine)
        figures = experiment([clean, noise], {"news": news}, out)
    return figures, out, engine.made


def test_text_beats_noise_significantly_and_the_placebo_interval_contains_zero(done):
    figures, _, made = done
    clean, noise = figures.corpora
    assert made == 9 and clean.difference is None
    low, high = noise.difference.interval
    assert 0 < low < noise.difference.mean < high
    assert figures.placebo.holds_zero
    assert figures.power["detectable"] < noise.difference.mean
    assert clean.score.mean < noise.score.mean


def test_all_runs_read_the_same_number_of_tokens_and_epochs_are_reported(done):
    figures, out, _ = done
    clean, noise = figures.corpora
    assert clean.tokens == noise.tokens == figures.placebo.tokens == 31 * 64
    assert clean.epochs != noise.epochs
    assert figures.tokenizer.origin == "trained on the union of clean, noise"
    for seed in range(3):
        lines = [
            json.loads((out / "runs" / name / f"seed-{seed}" / "metrics.jsonl").open().readline())
            for name in ("clean", "placebo")
        ]
        assert lines[0]["loss"] != lines[1]["loss"]  # other documents first
    plans = [
        json.loads((out / "runs" / name / "seed-0" / "train.json").read_text())["plan"]
        for name in ("clean", "noise", "placebo")
    ]
    assert plans[0]["model"] == plans[1]["model"] == plans[2]["model"]


def test_texts_and_their_sources_add_up_to_the_pooled_figure(done):
    figures, _, _ = done
    for row in figures.corpora:
        news = row.texts["news"]
        assert set(news.sources) == {"x", "y"}
        total = sum(s.score.mean * s.size for s in news.sources.values())
        assert total / news.size == pytest.approx(row.score.mean)


def test_the_curve_ends_at_the_score_of_the_end(done):
    figures, _, _ = done
    for row in (*figures.corpora, figures.placebo):
        tokens, bits = row.curve[-1]
        assert tokens == row.tokens and len(row.curve) == 2
        assert bits == pytest.approx(row.score.mean, rel=1e-6)


def test_evaluation_documents_that_a_corpus_holds_are_left_out_and_reported(done):
    news = done[0].eval["news"]
    assert news.drawn == 12 and news.left_out == 2
    assert news.overlap["clean"].left_out == 2
    assert news.overlap["noise"] == Overlap(0, 0, 0)
    assert done[0].corpora[0].texts["news"].items == 10


def test_stopped_it_continues_run_by_run_to_the_same_figures(inputs, tmp_path, monkeypatch):
    clean, noise, news = inputs
    few = {"tokens": 400, "seeds": 1}
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    whole = experiment([clean, noise], {"news": news}, tmp_path / "whole", **few)
    for stop in (1, None):
        engine = Here(stop)
        monkeypatch.setattr("curate.experiment.runs.open_engine", engine)
        try:
            figures = experiment([clean, noise], {"news": news}, tmp_path / "stopped", **few)
        except KeyboardInterrupt:
            assert stop is not None
    assert engine.made == 2
    assert without_cost(figures) == without_cost(whole)
    again = experiment([clean, noise], {"news": news}, tmp_path / "stopped", **few)
    assert engine.made == 2 and again == figures  # to the second: nothing is measured anew


def test_figures_are_remade_from_nats_without_training(inputs, done, monkeypatch):
    clean, noise, news = inputs
    engine = Here()
    monkeypatch.setattr("curate.experiment.runs.open_engine", engine)
    (done[1] / "runs" / "noise" / "seed-1" / "scores.npz").write_bytes(b"damaged")
    assert experiment([clean, noise], {"news": news}, done[1]) == done[0]
    assert engine.made == 0


def test_equal_documents_and_epochs_are_tokens_of_each_corpus(inputs, tmp_path, monkeypatch):
    clean, noise, news = inputs
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    figures = experiment(
        [clean, noise], {"news": news}, tmp_path, tokens=None, epochs=0.5, seeds=1, points=1
    )
    for row in figures.corpora:
        assert row.epochs == pytest.approx(0.5, abs=0.05)
    assert figures.corpora[0].tokens != figures.corpora[1].tokens
    assert figures.corpora[1].difference.interval is None
    assert "one seed cannot tell a difference from chance" in figures.text()


def test_page_and_lines_say_all_that_decides(done):
    figures, _, _ = done
    page, lines = figures.page(), figures.text()
    for words in ("noise: worse than clean", "the interval contains 0, as expected", "80 % power"):
        assert words in lines and words in page
    assert re.search(r"machine: .*1 thread per run, PyTorch", lines)
    assert "3 seeds (0, 1, 2)" in lines and "9 runs" in lines
    assert page.index("noise: worse than clean") < page.index("<table") and "<dt>made</dt>" in page
    assert page.count("<svg") == 3 and "could not be drawn" not in page


def test_minutes_choose_model_and_tokens_and_say_what_could_be_detected(
    inputs, tmp_path, monkeypatch
):
    clean, noise, news = inputs
    engine = Here()
    monkeypatch.setattr("curate.experiment.runs.open_engine", engine)
    changes = {"tokens": None, "minutes": 0.05, "seeds": 2, "points": 1}
    figures = experiment([clean, noise], {"news": news}, tmp_path, **changes)
    plan = figures.minutes
    assert plan.model == figures.model == "tiny"
    assert plan.pilot.detectable > 0 and engine.made == 4 + 6
    assert figures.corpora[0].tokens == round(plan.tokens / 64) * 64
    assert figures.corpora[1].epochs <= 4.1
    assert experiment([clean, noise], {"news": news}, tmp_path, **changes) == figures
    assert "pilot" in figures.page()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{clean}", "{noise}", "--tokens", "9"], "(--on NAME=PATH)"),
        (["{clean}", "{noise}", "--on", "nosuch", "--tokens", "9"], "give PATH or NAME=PATH"),
        (["{clean}", "--on", "n={news}", "--tokens", "9"], "give at least two"),
        (["{clean}", "--variant", "b:layers", "--on", "n={news}"], "'layers' is no KEY=VALUE"),
        (["{clean}", "--variant", ":model.layers=2", "--on", "n={news}"], "write NAME:SECTION.KEY"),
        (
            ["{clean}", "--variant", "clean:model.layers=2", "--on", "n={news}"],
            "choose another name",
        ),
        (
            ["{clean}", "--variant", "b:model.layer=2", "--on", "n={news}", "--tokens", "9"],
            "b: model: unknown setting 'layer'",
        ),
        (
            ["{clean}", "--variant", "b:model.layers=2", "--on", "n={news}", "--minutes", "1"],
            "--minutes with --set b.model.layers=2: give --tokens or --flops",
        ),
        (
            ["{clean}", "{noise}", "--on", "n={news}", "--tokens", "9", "--score", "x"],
            "--score x: give one of bytes",
        ),
        (["{clean}", "{noise}", "--on", "n={news}"], "one of --tokens"),
        (["{clean}", "{noise}", "--on", "n={news}", "--tokens", "9", "--epochs", "1"], "one of"),
        (["{clean}", "{clean}", "--on", "n={news}", "--tokens", "9"], "write NAME="),
        (["placebo={clean}", "{noise}", "--on", "n={news}", "--tokens", "9"], "is reserved"),
        (["c4", "c4-unfiltered", "--on", "n={news}", "--tokens", "9"], "add --recipes"),
        (["--recipes", "c4", "c4-unfiltered", "--on", "n={news}", "--tokens", "9"], "--input"),
        (
            ["{clean}", "{noise}", "--on", "n={news}", "--tokens", "9", "--set", "c4.x=1"],
            "no section 'c4'",
        ),
        (
            ["{clean}", "{noise}", "--on", "n={clean}", "--tokens", "9"],
            "clean contains its documents",
        ),
        (
            ["{clean}", "{noise}", "--on", "n=no.jsonl", "--tokens", "9"],
            "no.jsonl does not exist",
        ),
        (
            ["{clean}", "{noise}", "--on", "n={news}", "--tokens", "9", "--engine", "slurm"],
            "with --engine local or ray",
        ),
        (
            ["{clean}", "{noise}", "--on", "n={news}", "--tokens", "9", "--tokenizer", "no"],
            "give a tokenizer.json",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_use_is_a_one_line_error(inputs, arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    clean, noise, news = inputs
    filled = [a.format(clean=clean, noise=noise, news=news) for a in arguments]
    assert invoke(["compare", *filled, "--vocab", "280", "-q", "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"lr": 0.1}, "lr: 0.1, not 0.003"),
        ({"model": "gigantic"}, "model 'gigantic': not a preset"),
    ],
    ids=["other settings in OUT", "no preset"],
)
def test_an_experiment_that_cannot_train_says_why(inputs, done, setting, message, monkeypatch):
    clean, noise, news = inputs
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    with pytest.raises((LlmcurateError, LlmcurateError), match=message) as raised:
        experiment([clean, noise], {"news": news}, done[1], **setting)
    assert raised.value.exit_code == 2


def test_the_command_writes_its_figures_and_a_page(inputs, done, tmp_path, capsys, monkeypatch):
    clean, noise, news = inputs
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    options = [f"--{name}={value}" for name, value in CHOSEN.items()]
    sets = [f"--set={setting}" for setting in SETS]
    command = ["compare", clean, noise, "--on", f"news={news}", *options, *sets, "-q", "--json"]
    assert invoke([*command, "--workers=1", "-o", str(done[1])]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures == json.loads((done[1] / "comparison.json").read_text())
    assert figures == json_values(done[0])
    assert (done[1] / "comparison.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_engines_give_the_same_figures(engine, inputs, done, tmp_path):
    from curate.api.model_settings import Compare
    from curate.experiment.compare import run_experiment
    from curate.experiment.corpora import named_corpora
    from curate.run.records import Options

    if engine == "ray":
        pytest.importorskip("ray")
    clean, noise, news = inputs
    corpora = named_corpora([clean, noise], [], False)
    place = Options(engine=engine, workers=2, quiet=True)
    figures = run_experiment(corpora, {"news": news}, tmp_path, Compare.of(**CHOSEN), SETS, place)
    assert without_cost(figures) == without_cost(done[0])


def test_recipes_run_over_one_input_and_are_compared(inputs, tmp_path, monkeypatch):
    """Two recipes over one input: one that keeps all, one that keeps long documents alone."""
    from curate.api.model_settings import Compare
    from curate.experiment.compare import run_experiment
    from curate.experiment.corpora import named_corpora
    from curate.run.records import Options

    clean, _, news = inputs
    paths = []
    for name, most in (("all", 10_000), ("short", 100)):
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"name: {name}\nsteps:\n  - document_length: {{min: 1, max: {most}}}\n")
        paths.append(str(path))
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    corpora = named_corpora(paths, [clean], True)
    chosen = Compare.of(**{**CHOSEN, "tokens": 128, "seeds": 1})
    sets = [*SETS, "document_length.min=2"]
    place = Options(workers=1, quiet=True)
    figures = run_experiment(corpora, {"news": news}, tmp_path / "out", chosen, sets, place)
    assert [row.name for row in figures.corpora] == ["all", "short"]
    assert figures.corpora[0].recipe == paths[0]
    recipe = Path(tmp_path / "out" / "corpora" / "all" / "recipe.yaml").read_text()
    assert "min: 2" in recipe


def test_variants_are_the_first_corpus_with_other_settings(inputs, tmp_path, monkeypatch):
    clean, _, news = inputs
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    variants = [
        "wide:model.feed_forward.width=64,pretrain.optimizer=lion",
        "bytes:model=tiny,tokenizer.vocab=270",
        "list",
    ]
    sets = ["list.model.attention.head_dim=16", "pretrain.weight_decay=0"]
    few = {"tokens": 400, "seeds": 2, "points": 1}
    figures = experiment([clean], {"news": news}, tmp_path, sets, variants, **few)
    assert [row.name for row in figures.corpora] == ["clean", "wide", "bytes", "list"]
    plans = {
        row.name: json.loads((tmp_path / "runs" / row.name / "seed-0" / "train.json").read_text())
        for row in figures.corpora
    }
    plan = {name: summary["plan"] for name, summary in plans.items()}
    assert plan["wide"]["model"]["feed_forward"]["width"] == 64
    assert plan["wide"]["train"]["optimizer"] == "lion"
    assert plan["bytes"]["model"]["vocab"] == 270 < plan["clean"]["model"]["vocab"]
    assert plan["list"]["model"]["attention"]["head_dim"] == 16
    assert {of["train"]["weight_decay"] for of in plan.values()} == {0}
    wide = figures.corpora[1]
    assert wide.settings == {"model.feed_forward.width": 64, "pretrain.optimizer": "lion"}
    assert wide.parameters > figures.corpora[0].parameters and wide.difference.interval
    assert figures.corpora[2].settings == {"model": "tiny", "tokenizer.vocab": 270}
    shards = sorted(path.name for path in (tmp_path / "shards").iterdir())
    assert shards == ["bytes", "clean", "placebo"]  # of `wide` and `list` the first's


def test_equal_flops_give_a_wider_model_fewer_steps(inputs, tmp_path, monkeypatch):
    clean, _, news = inputs
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    variants = ["wide:model.feed_forward.width=256"]
    few = {"tokens": None, "flops": 3e7, "seeds": 1, "points": 1}
    figures = experiment([clean], {"news": news}, tmp_path, (), variants, **few)
    plain, wide = figures.corpora
    assert plain.steps > wide.steps > 1
    for row in (plain, wide, figures.placebo):
        assert abs(row.flops - 3e7) <= row.flops / row.steps / 2


def test_a_comparison_without_a_difference_says_first_that_it_is_too_small(
    inputs, tmp_path, monkeypatch
):
    clean, _, news = inputs
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    figures = experiment(
        [clean], {"news": news}, tmp_path, (), ["same"], tokens=400, seeds=2, points=1
    )
    first = figures.text().splitlines()[0]
    assert first.startswith("too small to decide: no difference is beyond chance; this comparison")
    assert f"{figures.power['detectable']:.3f} bits per byte" in first
    assert figures.corpora[1].difference.mean == 0
    page = figures.page()
    assert page.index("too small to decide") < page.index("<table")


@pytest.mark.lab
def test_architectures_and_objectives_are_compared_on_the_same_spans(inputs, tmp_path, monkeypatch):
    clean, _, news = inputs
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    small = "model.layers=1,model.hidden=32,model.attention.heads=2,model.attention.head_dim=16"
    wide = "model.feed_forward.width=32"
    variants = [
        f"static:model=bert-tiny,{small},{wide},pretrain.objective=masked,"
        "pretrain.objective.fixed=true",
        f"t5:model=t5-tiny,{small},{wide},model.encoder.layers=1",
        "prefix:pretrain.objective=spans",
    ]
    few = {"tokens": 400, "seeds": 2, "score": "spans", "context": 64}
    figures = experiment([clean], {"news": news}, tmp_path, (), variants, **few)
    assert [row.name for row in figures.corpora] == ["clean", "static", "t5", "prefix"]
    sizes = {row.texts["news"].size for row in figures.rows}
    assert len(sizes) == 1 and figures.eval["news"].left_out == 2
    assert len((tmp_path / "texts" / "news.jsonl").read_text().splitlines()) == 10
    assert all(2 < row.score.mean < 12 and not row.curve for row in figures.rows)
    assert "15 % of the words are blanked" in figures.text()
    page = figures.page()
    assert page.count("<svg") == 2 and "decoders only what stands left" in page
    assert experiment([clean], {"news": news}, tmp_path, (), variants, **few) == figures
    bert = f"b:model=bert-tiny,{small},{wide}"
    with pytest.raises(LlmcurateError, match=r"b: an encoder assigns no .* give --score spans"):
        experiment([clean], {"news": news}, tmp_path, (), [bert], **{**few, "score": "bytes"})


@pytest.mark.lab
def test_the_error_of_a_fine_tuned_task_is_a_score(inputs, tmp_path, monkeypatch):
    clean, noise, news = inputs
    monkeypatch.setattr("curate.experiment.runs.open_engine", Here())
    task = tmp_path / "cats.jsonl"
    texts = [sentences(3000 + n, 1) for n in range(60)]
    lines = [{"text": text, "label": "cat" if "cat" in text else "none"} for text in texts]
    task.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    few = {"tokens": 128, "seeds": 2, "score": str(task), "tuning_steps": 3, "context": 128}
    figures = experiment([clean, noise], {}, tmp_path / "out", **few)
    first, second = figures.corpora
    items = first.texts["cats"].items
    assert 20 < items < 40 and figures.unit == "% wrong" and not figures.eval
    for run in (*first.runs, *second.runs):
        assert run.score * items / 100 == pytest.approx(round(run.score * items / 100))
    lines = figures.text()
    assert (
        "fine-tuned on half of cats.jsonl for 3 steps" in lines and "share a 13-gram" not in lines
    )
    assert "% wrong" in figures.page()
    with pytest.raises(LlmcurateError, match="leave --on out"):
        experiment([clean, noise], {"news": news}, tmp_path / "out", **few)
