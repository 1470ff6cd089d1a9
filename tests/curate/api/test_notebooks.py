"""Notebooks: previews of documents before a run, and results that display themselves."""

from __future__ import annotations

import inspect
import json
from urllib.request import urlopen

import pyarrow as pa
import pytest

from curate.steps.registry import step_class, step_names
from llmcurate import Corpus, steps
from llmcurate.base.errors import UsageError

HOSTILE = "<script>alert(1)</script> "
ROWS = [{"id": f"{HOSTILE}{i}", "text": HOSTILE + "word " * (10 * i + 1)} for i in range(8)]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    home = tmp_path_factory.mktemp("notebook")
    source = home / "in.jsonl"
    source.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    corpus = Corpus.read(str(source)).step(steps.DocumentLength(min=40))
    return corpus.run(home / "out", workers=1, quiet=True)


@pytest.mark.parametrize("name", step_names())
def test_every_step_is_a_call_whose_signature_has_its_settings(name):
    made = getattr(steps, "".join(map(str.capitalize, name.split("_"))))
    assert [*inspect.signature(made).parameters] == [*step_class(name).model_fields]


def test_a_wrong_setting_of_a_step_is_one_line_with_the_nearest():
    with pytest.raises(UsageError) as said:
        steps.GopherQuality(min_word=40)
    said_of = "step gopher_quality: unknown key 'min_word' in gopher_quality"
    assert str(said.value) == f"{said_of}; did you mean 'min_words'?"


def test_a_step_as_an_object_is_the_step_by_name():
    given = Corpus(("x",)).step(steps.GopherQuality(min_words=40))
    assert given == Corpus(("x",)).step("gopher_quality", min_words=40)


def test_documents_before_a_run_are_those_of_the_input(tmp_path, monkeypatch):
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path))
    corpus = Corpus.from_arrow(pa.Table.from_pylist(ROWS))
    assert len(corpus) == len([*corpus]) == len(ROWS)
    assert [row["text"] for row in corpus.head(3)] == [row["text"] for row in ROWS[:3]]


def test_views_of_texts_as_polars_gives_them_are_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path))
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"text": ["one", None, "two"], "tags": [["a"], ["b"], None]})
    assert pa.types.is_string_view(pa.table(frame).schema.field("text").type)
    assert [row["tags"] for row in Corpus.from_arrow(frame)] == [["a"], None]


def test_the_splits_of_a_data_set_are_named():
    both = dict.fromkeys(("train", "test"), pa.table({"text": ["one"]}))
    with pytest.raises(UsageError, match="give one of train, test"):
        Corpus.from_datasets(both)


def test_a_result_shows_its_funnel_and_the_rules_that_decide(result):
    shown = result._repr_html_()
    assert "<td>document_length</td>" in shown and "most dropped by: document_length" in shown
    assert "report.html" in shown


def test_document_text_is_escaped_in_html_views(result):
    for shown in (result.corpus, result.rejected, result.stats(), result.whatif(), result):
        assert "<script>alert" not in shown._repr_html_()


def test_whatif_of_a_result_answers_as_the_command_does(result):
    answer = result.whatif(document_length={"min": 60})
    kept = sum(len(row["text"].split()) >= 60 for row in ROWS)
    assert answer.figures.after.estimate.documents == kept and "kept" in str(answer)


def test_the_pages_of_documents_are_at_the_address_that_is_shown(result):
    browser = result.browse()
    try:
        assert browser.address in browser._repr_html_()
        assert urlopen(browser.address).status == 200
    finally:
        browser.close()
