"""Names of corpora, and settings for one or all of them."""

from __future__ import annotations

import pytest

from curate.experiment.corpora import check_inputs, named_corpora, read_sets
from llmcurate.base.errors import UsageError


def test_corpora_are_called_by_their_paths_or_as_they_are_named(tmp_path):
    folder = tmp_path / "run.2"
    folder.mkdir()
    corpora = named_corpora(["a/news.jsonl.gz", "mine=b/news.jsonl", str(folder)], [], False)
    assert [corpus.name for corpus in corpora] == ["news", "mine", "run.2"]
    assert [corpus.inputs for corpus in corpora] == [
        ("a/news.jsonl.gz",),
        ("b/news.jsonl",),
        (str(folder),),
    ]


def test_recipes_are_called_by_names_that_a_folder_can_have():
    corpora = named_corpora(["c4", "c4@paper", "old=c4"], ["in"], True)
    assert [corpus.name for corpus in corpora] == ["c4", "c4-paper", "old"]
    assert {corpus.inputs for corpus in corpora} == {("in",)}


def test_settings_go_to_the_recipes_that_have_the_step_and_to_training():
    corpora = named_corpora(["c4", "c4-unfiltered"], ["in"], True)
    given = ["c4.min_sentences=5", "language.threshold=0.5", "model.layers=2", "read.limit=9"]
    sets = read_sets(given, corpora)
    assert sets.values("model") == {"layers": 2} and sets.values("tokenizer", "c4") == {}
    assert [change.key for change in sets.recipes["c4"]] == ["min_sentences", "threshold", "limit"]
    assert [change.key for change in sets.recipes["c4-unfiltered"]] == ["threshold", "limit"]


def test_a_setting_prefixed_with_a_corpus_name_applies_to_that_corpus_only():
    corpora = named_corpora(["a=x.jsonl", "a.b=x.jsonl", "c4=x.jsonl"], [], False)
    given = ["tokenizer.vocab=9", "a.b.tokenizer.vocab=5", "a.shards.eos=false"]
    sets = read_sets([*given, "a.pretrain.objective.across=true"], corpora)
    assert sets.values("tokenizer", "a.b") == {"vocab": 5}
    assert sets.values("tokenizer", "a") == sets.values("tokenizer") == {"vocab": 9}
    assert sets.values("shards", "a") == {"eos": False} and not sets.values("shards", "c4")
    assert sets.values("pretrain", "a") == {"objective.across": True}


def test_settings_of_one_name_need_no_section():
    corpora = named_corpora(["c4", "raw=c4-unfiltered"], ["in"], True)
    given = ["badwords=null", "objective=causal", "raw.vocab=300", "attention.window=8"]
    sets = read_sets([*given, "raw.objective.across=true"], corpora)
    assert [change.key for change in sets.recipes["c4"]] == ["badwords"]
    assert sets.values("model") == {"attention.window": 8}
    assert sets.values("pretrain", "c4") == {"objective": "causal"}
    assert sets.values("pretrain", "raw") == {"objective": "causal", "objective.across": True}
    assert sets.values("tokenizer", "raw") == {"vocab": 300}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("gopher_quality.min_words=9", "no section 'gopher_quality'"),
        ("other.tokenizer.vocab=9", "no section 'other'"),
        ("c4.layers=2", "no setting 'layers'; write section.key"),
        ("pretrain.steps=9", "steps follow from --tokens"),
        ("c4.pretrain.seed=9", "give --seed"),
        ("c4.shards.shuffle=9", "the experiment shuffles documents"),
    ],
)
def test_a_setting_that_no_step_has_is_refused(setting, message):
    with pytest.raises(UsageError, match=message):
        read_sets([setting], named_corpora(["c4=x.jsonl", "raw=x.jsonl"], [], False))


def test_a_missing_input_is_named_before_anything_is_read(tmp_path):
    corpora = named_corpora([str(tmp_path / "no.jsonl"), "b=x.jsonl"], [], False)
    with pytest.raises(UsageError, match=r"no\.jsonl does not exist"):
        check_inputs(corpora, read_sets([], corpora))
