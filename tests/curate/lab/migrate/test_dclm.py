"""Lists of functions of DCLM as recipes: which become one step, and rules that the list lacks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from curate.lab.migrate import dclm
from curate.lab.migrate.migration import Migration
from curate.lab.migrate.operators import FILTERS
from tests.curate.lab.migrate.conftest import Migrate


def functions(*names: str | dict[str, Any]) -> str:
    """A configuration with these functions; the name of one without arguments is enough."""
    steps = [name if isinstance(name, dict) else {"func": name} for name in names]
    return yaml.safe_dump([{"source": "cc", "steps": steps}], sort_keys=False)


def values(done: Migration) -> list[tuple[str, dict[str, Any]]]:
    return [(s.step, {each.name: each.plain for each in s.settings}) for s in done.steps]


def test_gophers_functions_are_one_step_and_the_absent_ones_are_off(migrated: Migrate) -> None:
    words = {"func": "page_length_filter", "length_type": "word", "min_length": 40}
    text = functions(
        {**words, "max_length": 9000, "ignore_punctuation": True},
        {"func": "alphabetic_word_ratio_filter", "max_ratio": 0.25},
        "stop_word_filter",
    )
    done = migrated(text, "gopher.yaml")
    assert done.steps[0].stands_for == done.total == 3
    assert values(done) == [
        (
            "gopher_quality",
            {
                **FILTERS["gopher_quality"],
                **{"variant": "dclm", "profile": "none", "min_words": 40, "max_words": 9000},
                **{"min_alpha_words": 0.75, "min_stop_words": 2},
            },
        )
    ]


def test_a_function_that_comes_again_begins_another_step(migrated: Migrate) -> None:
    text = functions(
        {"func": "stop_word_filter", "min_stop_word": 1},
        {"func": "stop_word_filter", "min_stop_word": 2},
        "massive_web_repetition_filters",
        {"func": "stop_word_filter", "min_stop_word": 3},
    )
    assert [step.step for step in migrated(text, "a.yaml").steps] == [
        "gopher_quality",
        "gopher_quality",
        "gopher_repetition",
        "gopher_quality",
    ]


def test_rules_before_and_after_lines_are_cut_are_two_steps(migrated: Migrate) -> None:
    for cut in ("punctuation_line_modifier", "counter_line_modifier"):
        done = migrated(functions("stop_word_filter", cut, "bullet_count_filter"), "a.yaml")
        assert [step.step for step in done.steps][::2] == ["gopher_quality"] * 2


def test_a_limit_belongs_to_the_model_before_it(migrated: Migrate) -> None:
    models = [
        {"func": "classify_fasttext_hq_prob_enricher", "model_filename": f"{name}.bin"}
        for name in "ab"
    ]
    done = migrated(functions(*models, {"func": "quality_filter", "threshold": 0.5}), "a.yaml")
    assert [step for _, step in values(done)] == [
        {"model": "a.bin"},
        {"model": "b.bin", "threshold": 0.5},
    ]


def test_lists_of_urls_are_one_step(migrated: Migrate) -> None:
    url = {"func": "url_substring_filter"}
    text = functions(
        {**url, "banlist_from_fname": "hosts.txt", "exact_domain_match": True},
        {**url, "banlist": ["a.example", "b.example"], "exact_domain_match": True},
        {**url, "banlist_from_fname": "parts.txt"},
        {**url, "banlist_from_fname": "words.txt", "match_substrings": False},
        {**url, "banlist_from_fname": "soft.txt", "match_substrings": False}
        | {"num_banned_substrs": 3},
    )
    assert values(migrated(text, "urls.yml")) == [
        (
            "url_filter",
            {
                "hosts": ["hosts.txt"],
                "exclude": ["a.example", "b.example"],
                "banned_subwords": ["parts.txt"],
                "banned_words": ["words.txt"],
                "soft_words": ["soft.txt"],
                "max_soft_words": 3,
            },
        )
    ]


def test_refinedwebs_line_rules_are_one_step(migrated: Migrate) -> None:
    cut = {"func": "substring_line_modifier", "max_length": 8, "remove_substring_only": True}
    text = functions(
        {"func": "word_counter_enricher", "key": "before"},
        {"func": "uppercase_ratio_line_modifier", "max_ratio": 0.4},
        "numeric_ratio_line_modifier",
        "counter_line_modifier",
        {"func": "line_length_modifier", "min_length": 2},
        {**cut, "banlist": "items in cart"},
        {**cut, "banlist": ["log in", "sign up"], "location": "prefix"},
        {"func": "word_removal_ratio_filter", "prev_word_count_key": "before"},
    )
    done = migrated(text, "lines.yaml")
    assert not done.remarks and done.mapped == done.total == 8
    (lines,) = values(done)
    assert lines == (
        "refinedweb_lines",
        {
            **{"variant": "dclm", "profile": "none", "max_uppercase": 0.4, "max_numeric": 1.0},
            **{"short_line_words": 8, "anywhere": ["items in cart"], "line_ends": []},
            **{"line_starts": ["log in", "sign up"], "max_removed_words": 0.05},
        },
    )


def test_a_rule_that_cannot_be_turned_off_is_named(migrated: Migrate) -> None:
    done = migrated(functions("uppercase_ratio_line_modifier"), "lines.yaml")
    assert [str(remark) for remark in done.remarks] == [
        "line 3: uppercase_ratio_line_modifier: differs: refinedweb_lines always applies the rule"
        f" of {name}"
        for name in ("counter_line_modifier", "line_length_modifier")
    ]


def test_c4s_functions_are_c4_and_the_duplicates_of_lines(migrated: Migrate) -> None:
    length = {"func": "page_length_filter"}
    text = functions(
        {**length, "length_type": "char", "max_length": 190000},
        {"func": "word_length_modifier", "max_length": 1000},
        "citation_removal_modifier",
        {"func": "punctuation_line_modifier", "remove_ellipses": True},
        {"func": "line_length_modifier", "min_length": 5},
        {"func": "substring_filter", "banlist": ["lorem ipsum"]},
        {"func": "substring_line_modifier", "banlist": ["javascript"]},
        {**length, "length_type": "sentence", "min_length": 3},
        {"func": "split_lines_modifier"},
        {"func": "exact_dedup", "content_key": "url", "normalize": "normalize_url"},
        {"func": "exact_dedup", "content_key": "text", "selection_key": "url"},
        "join_lines_modifier",
        {**length, "length_type": "sentence", "min_length": 4},
        {"func": "substring_filter", "banlist_from_fname": "bad.txt", "exact_word": True},
    )
    done = migrated(text, "c4.yaml")
    assert done.mapped == done.total == 14
    assert [values(done)[1][1][name] for name in ("min_words_per_line", "min_sentences")] == [5, 3]
    assert values(done)[2:] == [
        ("dedup_exact", {"key": "url", "normalize": True, "survivor": "first"}),
        ("dedup_passages", {"unit": "line", "survivor": "c4", "min_sentences": 4}),
        ("bad_words", {"badwords": "bad.txt"}),
    ]


def test_language_quality_and_sampling(migrated: Migrate) -> None:
    text = functions(
        {"func": "random_sampling_filter", "keep_probability": 0.5},
        {"func": "newline_removal_modifier", "max_consecutive": 3},
        {"func": "detect_lang_whole_page_enricher", "model": "fasttext"},
        {"func": "language_filter", "keep_languages": ["en"], "threshold": 0.6},
        {"func": "classify_fasttext_hq_prob_enricher", "model_filename": "hq.bin"},
        {"func": "quality_filter", "threshold": 0.02},
    )
    done = migrated(text, "a.yaml")
    assert [(each.name, each.value) for each in done.read] == [("share", 0.5)]
    assert values(done) == [
        ("newline_runs", {"most": 3}),
        ("language", {"model": "lid.176.bin", "keep": ["en"], "threshold": 0.6}),
        ("quality", {"model": "hq.bin", "threshold": 0.02}),
    ]


@pytest.mark.parametrize(
    "function",
    [
        "url_removal_modifier",
        "within_page_dedup",
        "someones.own_function",
        {"func": "page_length_filter", "length_type": "paragraph"},
        {"func": "quality_filter", "lower_better": True},
        {"func": "substring_filter", "banlist": ["x"]},
        {"func": "url_substring_filter", "banlist_from_fname": "words.pkl"},
        {"func": "stop_word_filter", "min_stop_word": "many"},
        {"func": "language_filter", "keep_languages": {"a": [1]}},
        {"func": "alphabetic_word_ratio_filter", "max_ratio": [1]},
    ],
)
def test_what_has_no_step_is_counted_with_its_line(
    migrated: Migrate, function: str | dict[str, Any]
) -> None:
    done = migrated(functions(function), "a.yaml")
    assert (done.mapped, done.total) == (0, 1)
    assert str(done.remarks[0]).startswith("line 3: ")


NAMES = sorted(set(re.findall(r'"(\w+_\w+)"', Path(dclm.__file__).read_text())))
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
ARGUMENTS = st.dictionaries(
    st.sampled_from(NAMES), VALUES | st.lists(VALUES, max_size=2) | st.just({"a": [1]}), max_size=4
)


@given(st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENTS), min_size=1, max_size=4))
def test_any_arguments_become_a_recipe_or_remarks(steps: list[tuple[str, dict[str, Any]]]) -> None:
    text = functions(*({"func": name, **arguments} for name, arguments in steps))
    done = dclm.migrate(text, Path("a.yaml"), yaml.safe_load(text)).checked()
    assert done.total == len(steps)
    yaml.safe_load(done.recipe("name"))


def test_only_the_first_source_is_followed(migrated: Migrate) -> None:
    text = functions("stop_word_filter") + functions("newline_removal_modifier")
    done = migrated(text, "a.yaml")
    assert [step.step for step in done.steps] == ["gopher_quality"]
    assert "line 4: source: differs" in str(done.remarks[-1])
