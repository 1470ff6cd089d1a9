"""Recipes: a mistake is one line with file, line and the nearest key; what is right round-trips."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from curate.documents.documents import documents
from curate.formats.inputs import InputPlan
from curate.run.plan import plan_run
from curate.steps.recipe import compose, load, parse
from curate.steps.registry import REGISTRY, step_class
from curate.steps.shipped import shipped
from llmcurate.base.errors import UsageError
from tests.curate.command_line import environment

MISTAKES = {
    "unknown key": (
        "steps:\n  - c4:\n      min_sentence: 3\n",
        r"r\.yaml:3: unknown key 'min_sentence' in c4; did you mean 'min_sentences'\?",
    ),
    "wrong type": (
        "steps:\n  - c4: {min_sentences: many}\n",
        r"r\.yaml:2: c4\.min_sentences is 'many': give a whole number",
    ),
    "unknown step": (
        "steps:\n  - c4\n  - dedup_exakt\n",
        r"r\.yaml:3: unknown step 'dedup_exakt'; did you mean 'dedup_exact'\?",
    ),
    "a step by another tool's name": (
        "steps:\n  - exact_dedup\n",
        r"r\.yaml:2: unknown step 'exact_dedup'; did you mean 'dedup_exact'\?",
    ),
    "unknown top key": (
        "name: x\nstep: []\nsteps: [c4]\n",
        r"r\.yaml:2: unknown key 'step'; did you mean 'steps'\?",
    ),
    "unknown read key": (
        "read:\n  batch_row: 5\nsteps: [c4]\n",
        r"r\.yaml:2: unknown key 'batch_row' in read; did you mean 'batch_rows'\?",
    ),
    "value out of range": ("read: {batch_rows: 0}\nsteps: [c4]\n", r"r\.yaml:1: read\.batch_rows"),
    "no YAML": ("steps:\n  - c4: {\n", r"r\.yaml:\d: not YAML"),
    "a tag of Python": ("steps: !!python/object:os.system [x]\n", r"r\.yaml:1: not YAML"),
    "no mapping": ("- c4\n", r"r\.yaml: a recipe must be a mapping"),
    "empty": ("", r"r\.yaml: a recipe must be a mapping"),
    "no steps": ("name: x\n", r"r\.yaml: `steps` must be a list"),
    "steps as text": ("steps: c4\n", r"r\.yaml: `steps` must be a list"),
    "settings as list": (
        "steps:\n  - c4: [1]\n",
        r"r\.yaml:2: the settings of c4 must be a mapping",
    ),
    "two steps in one": ("steps:\n  - {c4: {}, extract: {}}\n", r"r\.yaml:2: a step is"),
    "a step behind a product": (
        "steps:\n  - tokenizer\n  - c4\n",
        r"r(\.yaml)?.*c4 works on documents and must come before the product tokenizer",
    ),
    "a survivor nobody knows": (
        "steps:\n  - dedup_exact:\n      survivor: oldest\n",
        r"r\.yaml:3: dedup_exact\.survivor: unknown survivor policy 'oldest'",
    ),
    "a variant nobody knows": (
        "steps:\n  - c4@nobody\n",
        r"r\.yaml:2: c4\.variant is 'nobody': choose one of tfds, paper",
    ),
    "a variant of what has none": ("steps:\n  - dedup_exact@x\n", r"'dedup_exact' has no variants"),
    "a tab": ("steps:\n\t- c4\n", r"r\.yaml:2: not YAML: the line begins with a tab"),
    "two documents": ("steps: [c4]\n---\na: 1\n", "expected a single document in the stream, but"),
    "read as text": ("read: fast\nsteps: [c4]\n", r"r\.yaml:1: `read`"),
    "input as mapping": ("input: {a: 1}\nsteps: [c4]\n", r"r\.yaml:1: `input`"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_says_where_and_what(mistake):
    text, message = MISTAKES[mistake]
    with pytest.raises(UsageError, match=message) as error:
        parse(text, "r.yaml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("c4.min_sentence=3", "unknown key 'min_sentence' in c4; did you mean 'min_sentences'"),
        ("c5.min_sentences=3", "no section 'c5'; did you mean 'c4'"),
        ("min_sentnces=3", "no setting .min_sentnces.; did you mean .min_sentences."),
        ("min_sentences", r"write section\.key=value"),
        ("c4.min_sentences={", "not YAML"),
        ("c4={min_sentences: 3}", r"write c4\.KEY=value, for one setting of the step"),
        ("c4.min_sentences=", r"c4\.min_sentences has no value: give a whole number"),
        ("read.batch_rows=none", r"read\.batch_rows"),
    ],
)
def test_a_wrong_override_is_a_one_line_error(item, message):
    with pytest.raises(UsageError, match=message) as error:
        parse("steps: [c4]\n", "r.yaml", (item,))
    assert "\n" not in str(error.value) and str(error.value).startswith(f"--set {item}: ")


def test_an_override_of_one_limit_leaves_the_limits_of_other_n_as_they_are():
    text, setting = "steps: [gopher_repetition]\n", "gopher_repetition.max_top_n_gram_chars"
    own = "steps: [gopher_repetition: {max_top_n_gram_chars: {3: 0.5}}]\n"
    for start, others in ((text, {3: 0.18, 4: 0.16}), (own, {3: 0.5})):
        (step,) = parse(start, "r.yaml", (f"{setting}.2=0.9",)).steps
        assert step.max_top_n_gram_chars == {2: 0.9, **others}
    with pytest.raises(UsageError, match=r"max_top_n_gram_chars\.5 is '5': give 4 or less"):
        parse(text, "r.yaml", (f"{setting}.5=0.9",))


def test_an_error_caused_by_an_override_names_the_override():
    text = "steps:\n  - document_length: {min: 10}\n  - c4\n"
    for sets, start in (
        (("document_length.max=5",), "--set document_length.max=5: document_length: "),
        (("document_length.max=50", "c4.min_sentences=x"), "--set c4.min_sentences=x: c4."),
    ):
        with pytest.raises(UsageError) as error:
            parse(text, "r.yaml", sets)
        assert str(error.value).startswith(start)
    with pytest.raises(UsageError, match=r"^r\.yaml:2: unknown key 'mi'"):
        parse(text.replace("min:", "mi:"), "r.yaml", ("document_length.max=5",))
    with pytest.raises(UsageError, match=r"^--set c4\.min_sentences=x: c4\.min_sentences is 'x': "):
        compose("filter", [("c4", {})], ("c4.min_sentences=x",))


def test_overrides_reach_the_step_by_its_label():
    text = "steps:\n  - c4\n  - dedup_exact: {key: url}\n  - c4\n  - dedup_exact\n"
    sets = ("c4.min_sentences=1", "c4#2.min_sentences=7", "dedup_exact#2.survivor=newest")
    recipe = parse(text, "r.yaml", (*sets, "read.batch_rows=9"))
    assert [s.label for s in recipe.steps] == ["c4", "dedup_exact", "c4#2", "dedup_exact#2"]
    first, url, second, plain = recipe.steps
    assert (first.min_sentences, second.min_sentences) == (1, 7)
    assert (url.survivor, plain.survivor) == ("longest", "newest")
    assert recipe.read.batch_rows == 9


def test_an_override_may_name_a_file_of_values():
    (step,) = parse("steps: [url_filter]", "r.yaml", ("url_filter.exclude= @my sites.txt ",)).steps
    assert step.exclude == ("@my sites.txt",)


def test_a_setting_of_one_name_needs_no_section():
    text = "steps: [c4, dedup_exact, dedup_minhash, pretrain]\n"
    sets = ("min_sentences=1", "verify=0.8", "batch_rows=9", "model.layers=2", "objective=spans")
    recipe = parse(text, "r.yaml", (*sets, "objective.form=causal", "attention.window=16"))
    c4, _, minhash, pretrain = recipe.steps
    assert (c4.min_sentences, minhash.verify, recipe.read.batch_rows) == (1, 0.8, 9)
    assert pretrain.model == {"layers": 2, "attention": {"window": 16}}
    assert pretrain.objective == {"kind": "spans", "form": "causal"}


@pytest.mark.parametrize(
    ("item", "places"),
    [
        ("survivor=newest", "dedup_exact.survivor or dedup_minhash.survivor"),
        pytest.param(
            "layers=2",
            "pretrain.model.layers or pretrain.model.encoder.layers",
            marks=pytest.mark.lab,
        ),
    ],
)
def test_a_setting_of_several_names_them_and_each_of_them_works(item, places):
    text = "steps: [dedup_exact, dedup_minhash, pretrain]\n"
    with pytest.raises(UsageError) as error:
        parse(text, "r.yaml", (item,))
    assert str(error.value) == f"--set {item}: more than one setting has this name; write {places}"
    for place in places.split(" or "):
        parse(text, "r.yaml", ("pretrain.model=t5-tiny", f"{place}={item.partition('=')[2]}"))


def test_a_wrong_setting_outside_of_a_file_names_its_step_once():
    for settings, message in (
        ({"weights": "much"}, "step mix: weights is 'much'; "),
        ({"seed": "x"}, "step mix: seed is 'x': "),
        ({"seeds": 1}, "step mix: unknown key 'seeds' in mix; did you mean 'seed'?"),
    ):
        with pytest.raises(UsageError) as error:
            compose("mix", [("mix", settings)], ())
        assert str(error.value).startswith(message)


def test_a_name_with_a_variant_is_the_step_with_that_setting():
    (short,) = parse("steps: [c4@tfds]\n", "r.yaml").steps
    (long,) = parse("steps:\n  - c4: {variant: tfds}\n", "r.yaml").steps
    assert short == long


def test_a_second_step_of_a_name_annotates_under_its_own_label():
    step = parse("steps: [c4, c4]\n", "r.yaml").steps[1]
    step.open()
    docs = documents({"id": ["a"], "text": ["{ too short"]}).within(step.label)
    out = step.apply(docs)
    assert {d.step for d in out.drops} == {"c4#2"}


@pytest.mark.parametrize(
    ("steps", "stages"),
    [
        ("[c4, c4]", 1),
        ("[c4, cut, c4]", 2),
        ("[cut, c4, cut, cut, c4, cut]", 2),
        ("[c4, dedup_exact, c4]", 2),
        ("[c4, dedup_exact, cut, c4]", 3),
        ("[dedup_exact, dedup_exact]", 3),
        ("[tokenizer, shards]", 0),
        ("[c4, cut, tokenizer]", 1),
    ],
)
def test_stages_end_at_corpus_steps_and_where_the_recipe_says_cut(steps, stages):
    recipe = parse(f"steps: {steps}\n", "r.yaml")
    plan = plan_run(recipe, InputPlan((), ()))
    assert len(plan.stages) == stages


def test_stages_after_a_dedup_depend_on_its_settings():
    def keys(steps: str) -> list[str]:
        return [
            s.key for s in plan_run(parse(f"steps: {steps}\n", "r.yaml"), InputPlan((), ())).stages
        ]

    first, behind = keys("[c4, {dedup_exact: {key: text}}, c4]")
    assert keys("[c4, {dedup_exact: {key: url}}, c4]")[0] == first
    assert keys("[c4, {dedup_exact: {key: url}}, c4]")[1] != behind


def test_the_resolved_recipe_means_the_same():
    text = (
        "name: x\ndescription: d\ninput: [a, b]\nread: {batch_rows: 5}\n"
        "steps: [c4@tfds, cut, {dedup_exact: {key: url}}, dedup_exact, tokenizer]\n"
    )
    recipe = parse(text, "r.yaml")
    again = parse(yaml.safe_dump(recipe.resolved()), "again.yaml")
    assert again.digest() == recipe.digest()
    assert (again.name, again.input, again.cuts) == (recipe.name, recipe.input, recipe.cuts)


@pytest.mark.lab
def test_shipped_recipes_are_valid_and_described():
    recipes = shipped()
    assert {"c4", "demo"} <= {entry.name for entry in recipes}
    for entry in recipes:
        recipe = load(entry.name)
        assert entry.description == recipe.description and recipe.steps
        assert entry.paper == recipe.paper and (entry.paper or entry.name == "demo")


def test_a_recipe_that_is_not_there_lists_those_that_are(tmp_path):
    with pytest.raises(UsageError, match=r"no recipe 'c5'.*c4"):
        load("c5")
    with pytest.raises(UsageError, match="No such file"):
        load(str(tmp_path / "missing.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        load(str(tmp_path / "latin.yaml"))


def test_every_step_is_in_the_documentation_of_recipes():
    text = (Path(__file__).parents[3] / "docs/recipes.md").read_text(encoding="utf-8")
    for name in REGISTRY:
        assert re.search(rf"\b{name}\b", text), name


def test_the_driver_loads_the_steps_of_a_shipped_recipe_without_numba():
    """Three that few recipes have keep kernels beside their settings."""
    rare = {"wangchanberta", "quality", "perplexity_model"}
    script = """
import sys
from curate.steps.registry import REGISTRY, step_class
for name in sorted(REGISTRY.keys() - set(sys.argv[1:])):
    step_class(name)
    assert "numba" not in sys.modules, name
"""
    subprocess.run([sys.executable, "-c", script, *rare], env=environment(), timeout=60, check=True)


def test_what_a_dedup_decides_by_can_be_loaded_ahead():
    for name in REGISTRY:
        decided_by = getattr(step_class(name), "decided_by", None)
        assert decided_by is None or find_spec(decided_by) is not None, name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: [document_length: {min: yes}]", "document_length.min: true is not a valid value"),
        ("steps: [document_length: {min: 1, unit: no}]", "document_length.unit: false is no"),
        ("steps: [mix: {weights: {a: on}}]", "mix.weights: a list or mapping is not a valid value"),
        ("read: {limit: true}\nsteps: [c4]", "read.limit: true is not a valid value"),
        ("name: yes\nsteps: [c4]", "name: true is not a valid value"),
        ("description: [a]\nsteps: [c4]", "description: a list or mapping is not a valid value"),
        ("steps: [c4: {min_words: 1, min_words: 2}]", "the key 'min_words' appears twice"),
        ("steps:\n" + "- c4\n" * 1001, "x.yaml: 1,001 steps; a recipe may have at most 1,000"),
    ],
)
def test_values_that_yaml_misreads_are_a_one_line_error(text, message):
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        parse(text, "x.yaml")
    assert str(error.value).startswith("x.yaml") and "\n" not in str(error.value)


def test_true_and_false_are_values_where_a_setting_takes_them():
    assert parse("steps: [pii: {phones: yes}]", "x.yaml").steps[0].phones is True


def test_a_pipe_is_no_recipe(tmp_path):
    os.mkfifo(tmp_path / "r.yaml")
    with pytest.raises(UsageError, match="it is a pipe, socket or device"):
        load(tmp_path / "r.yaml")
    with pytest.raises(UsageError, match="it is a pipe, socket or device"):
        load("/dev/zero")


@pytest.mark.parametrize(
    "step", ["bad_words: {badwords: /dev/zero}", "url_filter: {hosts: /dev/zero}"]
)
def test_a_device_is_no_word_list(step):
    with pytest.raises(UsageError, match="pipe, socket or device"):
        parse(f"steps: [{step}]", "x.yaml").digest()


@pytest.mark.parametrize(
    ("name", "kind"), [("mine.py", "a Python file"), ("my.ipynb", "a notebook")]
)
def test_a_file_that_is_no_recipe_is_named_by_its_kind(name: str, kind: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is {kind}, not a recipe"):
        parse("x = 1", name)
