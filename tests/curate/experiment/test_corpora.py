"""What corpora are called."""

from __future__ import annotations

import pytest

from curate.errors import UsageError
from curate.experiment.corpora import named_corpora, shares_of_sets


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
    sets = ["c4.min_sentences=5", "language.threshold=0.5", "model.layers=2", "read.limit=9"]
    training, changes = shares_of_sets(sets, corpora)
    assert training == {"model": {"layers": 2}, "pretrain": {}, "tokenizer": {}}
    assert [change.key for change in changes["c4"]] == ["min_sentences", "threshold", "limit"]
    assert [change.key for change in changes["c4-unfiltered"]] == ["threshold", "limit"]
    with pytest.raises(UsageError, match="no step of a recipe here"):
        shares_of_sets(["gopher_quality.min_words=9"], corpora)
    with pytest.raises(UsageError, match="steps follow from --tokens"):
        shares_of_sets(["pretrain.steps=9"], corpora)
