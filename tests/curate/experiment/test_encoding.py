"""Corpora with a tokenizer or shards of their own: settings reach them, text stays equal."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from curate.experiment.budget import Budget
from curate.experiment.corpora import choose_tokenizers, make_tokenizers, named_corpora, read_sets
from curate.run.records import Options
from llmcurate.base.errors import UsageError
from tests.curate.experiment.small_experiments import Here, experiment, sentences, write
from train.data.shards import read_shards

SETS = (
    "near.shards.packing=neighbours",
    "large.tokenizer.vocab=300",
    "same.tokenizer.vocab=300",
    "near.pretrain.objective.kind=causal",
    "near.pretrain.objective.across=true",
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """(a corpus, an evaluation text)."""
    folder = tmp_path_factory.mktemp("inputs")
    corpus = write(folder / "corpus.jsonl", [sentences(n) for n in range(40)])
    return corpus, write(folder / "news.jsonl", [sentences(900 + n) for n in range(10)], "xy")


@pytest.fixture(scope="module")
def done(inputs, tmp_path_factory):
    """(figures, OUT) of one corpus under four names."""
    corpus, news = inputs
    out = tmp_path_factory.mktemp("arms") / "out"
    names = [f"{name}={corpus}" for name in ("small", "near", "large", "same")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("curate.experiment.runs.open_engine", Here())
        figures = experiment(
            names, {"news": news}, out, SETS, tokens=None, epochs=0.5, seeds=1, points=1
        )
    return figures, out


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.lab
def test_settings_reach_the_corpus_that_they_name(done):
    figures, out = done
    shards = {name: manifest(out / "shards" / name) for name in ("small", "near", "large")}
    assert {name: of["vocab_size"] for name, of in shards.items()} == {
        "small": 280,
        "near": 280,
        "large": 300,  # also of `same`, which has equal settings
    }
    assert [name for name, of in shards.items() if of.get("packing") == "neighbours"] == ["near"]
    plans = {
        name: json.loads((out / "runs" / name / "seed-0" / "train.json").read_text())["plan"]
        for name in (*shards, "same")
    }
    across = {name: plan["train"]["objective"]["across"] for name, plan in plans.items()}
    assert across == {"small": False, "near": True, "large": False, "same": False}
    assert figures.corpora[2].settings == {"tokenizer.vocab": 300}


@pytest.mark.lab
def test_corpora_with_equal_settings_share_a_tokenizer_and_runs_differ_by_nothing(done):
    figures, out = done
    small, near, large, same = figures.corpora
    assert small.tokenizer == near.tokenizer == figures.tokenizer
    assert large.tokenizer == same.tokenizer != small.tokenizer
    assert sorted(path.name for path in (out / "tokenizers").iterdir()) == ["large"]
    assert large.score == same.score != small.score
    assert near.score != small.score
    assert small.tokenizer.origin == "trained on small"  # a file that four name is read once


@pytest.mark.lab
def test_equal_epochs_are_equal_text_and_the_same_documents_are_scored(done):
    figures, out = done
    small, _, large, _ = figures.corpora
    assert small.tokens > large.tokens and small.parameters < large.parameters
    assert small.epochs == pytest.approx(large.epochs, abs=0.03)
    texts = [read_shards(out / "eval" / "news"), read_shards(out / "evals" / "large" / "news")]
    assert texts[0].tokenizer_sha256 != texts[1].tokenizer_sha256
    assert texts[0].ids([0, 5, 9]) == texts[1].ids([0, 5, 9])
    assert np.array_equal(texts[0].bytes, texts[1].bytes)


@pytest.mark.lab
def test_page_and_lines_say_what_differs(done):
    figures, _ = done
    for shown in (figures.text(), figures.page()):
        assert "large: tokenizer.vocab=300" in shown
        assert "tokenizer of large: trained on small, 300 tokens; " in shown
        assert "unequal text" not in shown
    figures = replace(figures, equal=Budget("tokens", 2000))
    assert "equal tokens: 2,000 per run (unequal text, since tokenizers differ)" in figures.text()


@pytest.mark.parametrize(
    ("sets", "settings", "message"),
    [
        (["b.tokenizer.vocabulary=9"], {}, "unknown key 'vocabulary' in tokenizer"),
        (["b.tokenizer.vocab=300,400"], {}, "tokenizer.vocab: give one size"),
        (["b.shards.packing=best"], {}, "b.shards.packing=best"),
        (["b.shards.tokenizer=no.json"], {}, "no.json: give a tokenizer.json"),
        (["b.shards.tokenizer=t", "b.tokenizer.vocab=9"], {}, "names a finished tokenizer"),
        (["shards.packing=neighbours"], {}, "put a corpus without it first"),
        (["b.tokenizer.vocab=300"], {"tokens": None, "minutes": 1}, "--documents or --epochs"),
    ],
)
def test_an_impossible_experiment_is_a_one_line_error_before_training(
    inputs, sets, settings, message, tmp_path, monkeypatch
):
    corpus, news = inputs
    engine = Here()
    monkeypatch.setattr("curate.experiment.runs.open_engine", engine)
    with pytest.raises(UsageError) as raised:
        experiment([f"a={corpus}", f"b={corpus}"], {"news": news}, tmp_path / "o", sets, **settings)
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert engine.made == 0


def test_a_given_tokenizer_serves_the_corpora_without_their_own(inputs, tmp_path):
    corpus, _ = inputs
    corpora = named_corpora([f"{name}={corpus}" for name in "abc"], [], False)
    options = Options(1, True)
    own = make_tokenizers(
        choose_tokenizers(corpora, None, 290, read_sets([], corpora)), corpora, tmp_path, options
    )["a"].file
    sets = read_sets(["a.tokenizer.vocab=270", f"b.shards.tokenizer={own}"], corpora)
    given = tmp_path / "given.json"
    given.write_bytes(own.read_bytes())
    choices = choose_tokenizers(corpora, given, 290, sets)
    tokenizers = make_tokenizers(choices, corpora, tmp_path / "out", options)
    assert tokenizers["a"].file == tmp_path / "out" / "tokenizers" / "a" / "tokenizer.json"
    assert tokenizers["b"] == tokenizers["c"] and tokenizers["b"].file == own  # equal files
