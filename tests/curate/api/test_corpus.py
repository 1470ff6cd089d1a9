"""`Corpus`: steps chained in Python give the same recipe as the command line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from curate.steps.recipe import load, parse
from curate.steps.shipped import names
from llmcurate import Corpus, run_recipe, steps
from llmcurate.base.errors import UsageError


def test_the_recipe_prints_as_yaml_that_is_the_same_recipe() -> None:
    corpus = (
        Corpus.read("crawl/*.warc.gz", limit=50)
        .extract(output="markdown")
        .step("cut")
        .filter("c4@tfds", "gopher_quality", min_words=40)
        .dedup("minhash", survivor="longest")
        .dedup("exact")
    )
    text = str(corpus.recipe)
    assert repr(corpus.recipe) == text
    assert text == (
        "name: corpus\n"
        "input: [crawl/*.warc.gz]\n"
        "read: {limit: 50}\n"
        "steps:\n"
        "- extract: {output: markdown}\n"
        "- cut\n"
        "- c4: {variant: tfds}\n"
        "- gopher_quality: {min_words: 40}\n"
        "- dedup_minhash: {survivor: longest}\n"
        "- dedup_exact\n"
    )
    again = parse(text, "recipe.yaml")
    assert again.digest() == corpus.recipe.digest() and again.input == ("crawl/*.warc.gz",)


@pytest.mark.lab
@pytest.mark.parametrize("name", [n for n in names() if n not in ("dclm-baseline", "ccnet-llama1")])
def test_a_shipped_recipe_prints_as_itself(name: str) -> None:
    recipe = load(name)
    again = parse(str(recipe), "again.yaml")
    assert [s.model_dump() for s in again.steps] == [s.model_dump() for s in recipe.steps]
    assert (again.read, again.cuts, again.paper) == (recipe.read, recipe.cuts, recipe.paper)


def test_a_corpus_object_is_immutable() -> None:
    first = Corpus.read("in.jsonl")
    languages = ["en"]
    second = first.language(keep=languages)
    languages.append("de")
    assert first.steps == () and second.recipe.steps[0].keep == ("en",)
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.steps = second.steps  # type: ignore[misc]


READ = Corpus.read("in.jsonl")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: READ.filter("gopher_qualty"), "did you mean 'gopher_quality'?"),
        (lambda: READ.filter("c4", "gopher_quality", min_word=3), "unknown key 'min_word' in c4"),
        (lambda: READ.filter(), "filter needs the name of a filter"),
        (lambda: READ.dedup("minhsh"), "no dedup method 'minhsh'; did you mean 'minhash'?"),
        (lambda: READ.dedup("minhash", verfy=1), "did you mean 'verify'?"),
        (lambda: READ.dedup("url", key="text"), "sets key to 'url'"),
        (lambda: READ.language(kep=["en"]), "unknown key 'kep' in language; did you mean 'keep'?"),
        (lambda: READ.step("dedup_minhas"), "did you mean 'dedup_minhash'?"),
        (lambda: READ.step("export").filter("c4"), "must come before the product"),
        (lambda: READ.extract(output="markdwn"), "step extract: output is 'markdwn': "),
        (lambda: READ.filter(lambda text: True), "is not a top-level function"),
        (lambda: Corpus.read("in.jsonl", lmit=3), "unknown key 'lmit' in read"),
        (lambda: Corpus.read(), "Corpus.read: name files, or a folder of them"),
        (lambda: Corpus.read([]), "Corpus.read: the list has no documents"),
        (lambda: READ.head(-1), "head: rows is -1: give a whole number"),
        (lambda: READ.filter(len), "len cannot be sent to workers"),
        (lambda: READ.filter(["c4"]), "give the rules one after the other, not as ['c4']"),
        (lambda: READ.step(steps.C4), "step: give an object, steps.C4(), or a step's name"),
    ],
)
def test_a_mistake_is_refused_at_once_in_one_line(call: Any, says: str) -> None:
    with pytest.raises(UsageError) as error:
        call()
    assert says in str(error.value) and "\n" not in str(error.value)


def test_inputs_may_be_a_list() -> None:
    assert Corpus.read(["a", Path("b")], "c").inputs == ("a", "b", "c")


def test_a_setting_goes_to_each_step_that_has_it() -> None:
    newest = READ.dedup("newest", max_removal=0.5).recipe.steps
    assert [step.max_removal for step in newest] == [0.5, 0.5]
    assert [step.survivor for step in newest] == ["newest", "newest"]


@pytest.mark.lab
def test_python_and_the_command_line_leave_the_same_bytes(bench, make_pages) -> None:
    bench.jsonl("in.jsonl", make_pages(40))
    source, folder = bench.folder / "in.jsonl", bench.folder
    result = Corpus.read(source).filter("c4", min_sentences=2).run(folder / "out", quiet=True)
    recipe = "name: x\nsteps: [{c4: {min_sentences: 2}}]\n"
    (folder / "r.yaml").write_text(recipe)
    assert bench.command("run", "r.yaml", "in.jsonl", "-o", "cli").returncode == 0
    shipped = {"document_length": {"min": 5}}
    again = run_recipe("wangchanberta-th", [source], folder / "th", quiet=True, **shipped)
    assert bench.bytes_of("out") == bench.bytes_of("cli")
    assert result.counts["read"] == 40 == again.counts["read"]
    assert 0 < result.counts["kept"] < 40


@pytest.mark.lab
def test_functions_in_files_are_filters(bench, make_pages, monkeypatch) -> None:
    source = bench.jsonl("in.jsonl", make_pages(20))
    rules = bench.folder / "own_rules.py"
    rules.write_text("def keep(text, metadata):\n    return len(text) > 50 or 'too_short'\n")
    monkeypatch.syspath_prepend(str(bench.folder))
    from own_rules import keep  # type: ignore[import-not-found]

    for name, rule in (("by_name", f"{rules}:keep"), ("by_object", keep)):
        result = Corpus.read(source).filter(rule).run(bench.folder / name, quiet=True)
        assert result.counts["by_rule"] == {"python.too_short": 3}
    stranger = bench.folder / "r.yaml"
    stranger.write_text("steps: [{python: own_rules.py:keep}]")
    with pytest.raises(UsageError, match="allow_python=True in Python"):
        run_recipe(stranger, source, bench.folder / "out", quiet=True)
    allowed = run_recipe(stranger, source, bench.folder / "out", quiet=True, allow_python=True)
    assert allowed.counts["kept"] == 17


def test_a_result_is_an_input(bench, make_pages) -> None:
    source = bench.jsonl("in.jsonl", make_pages(20))
    first = Corpus.read(source, limit=10).dedup("exact").run(bench.folder / "a", quiet=True)
    second = run_recipe(
        Corpus.read(first).dedup("exact").recipe, [], bench.folder / "b", quiet=True
    )
    assert second.counts["read"] == first.counts["kept"] < 10


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"c5": {"min_sentences": 1}}, "c5={'min_sentences': 1}: no section 'c5'; did you mean"),
        ({"c4": {"min_sentence": 1}}, "unknown key 'min_sentence' in c4; did you mean"),
        ({"c4": 5}, "c4=5: give a mapping, c4={'key': value}"),
        ({"limit": 0}, "limit=0: read.limit is 0: "),
        ({"read": {"lmit": 1}}, "did you mean 'limit'?"),
    ],
)
def test_run_recipe_names_the_setting_that_is_wrong(settings: Any, says: str) -> None:
    with pytest.raises(UsageError) as error:
        run_recipe("c4", "in.jsonl", "out", **settings)
    assert says in str(error.value) and "\n" not in str(error.value)
    assert not Path("out").exists()
