"""NeMo Curator's filters decide as its published rules do, and its scripts are read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import regex

from curate.lab.migrate import nemo_curator
from llmcurate.base.errors import UsageError
from tests.curate.lab.migrate.peer_texts import edited, kept, migrated, settings, web_texts

COMMON = {"the", "be", "to", "of", "and", "that", "have", "with"}
URL = r"http[s]?://(?:[a-zA-Z]|[0-9]|[$-_@.&+]|[!*\(\),]|(?:%[0-9a-fA-F][0-9a-fA-F]))+"


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def share(number: float, text: str) -> float:
    return number / len(text)


def mean_length(text: str) -> float:
    return len("".join(text.split())) / len(text.split())


# Written from the descriptions of nemo_curator/filters/heuristic_filter.py.
EXACT: list[tuple[str, str, Callable[[str], bool]]] = [
    (
        "NonAlphaNumericFilter",
        "max_non_alpha_numeric_to_text_ratio: 0.2",
        lambda t: share(len(re.findall("[^a-zA-Z0-9\n?!,.]", t)), t) <= 0.2,
    ),
    (
        "NumbersFilter",
        "max_number_to_text_ratio: 0.01",
        lambda t: share(len(regex.findall("[[:digit:]]", t)), t) <= 0.01,
    ),
    (
        "UrlsFilter",
        "max_url_to_text_ratio: 0.05",
        lambda t: share(sum(map(len, re.findall(URL, t))), t) <= 0.05,
    ),
    (
        "ParenthesesFilter",
        "max_parentheses_ratio: 0.005",
        lambda t: share(len(re.findall(r"[{}⟨⟩\[\]()]", t)), t) <= 0.005,
    ),
    ("LongWordFilter", "max_word_length: 25", lambda t: max(map(len, t.split())) <= 25),
    (
        "WordCountFilter",
        "{min_words: 80, max_words: 200}",
        lambda t: 80 <= len(t.split()) <= 200,
    ),
    (
        "MeanWordLengthFilter",
        "{min_mean_word_length: 4.2, max_mean_word_length: 5}",
        lambda t: 4.2 <= mean_length(t) <= 5,
    ),
    (
        "WordsWithoutAlphabetsFilter",
        "min_words_with_alphabets: 0.95",
        lambda t: (
            sum(map(bool, map(re.compile("[a-z]").search, t.lower().split())))
            >= 0.95 * len(t.split())
        ),
    ),
    (
        "CommonEnglishWordsFilter",
        "min_num_common_words: 30",
        lambda t: sum(word in COMMON for word in t.split()) >= 30,
    ),
    (
        "RepeatedLinesFilter",
        "max_repeated_line_fraction: 0.7",
        lambda t: len(set(lines(t))) / len(lines(t)) >= 0.7,
    ),
    (
        "RepeatedParagraphsFilter",
        "max_repeated_paragraphs_ratio: 0.9",
        lambda t: len(set(t.split("\n\n"))) / len(t.split("\n\n")) >= 0.9,
    ),
]


@pytest.mark.parametrize(("name", "params", "rule"), EXACT, ids=[case[0] for case in EXACT])
def test_a_filter_keeps_what_its_published_rule_keeps(
    name: str, params: str, rule: Callable[[str], bool]
) -> None:
    params = params if params[0] == "{" else f"{{{params}}}"
    text = f"filters:\n- {{name: nemo_curator.filters.{name}, params: {params}}}"
    done = migrated(nemo_curator, text)
    expected = [rule(text) for text in web_texts()]
    assert kept(done.steps) == expected and 5 < sum(expected) < 195


def duplicate_n_grams(text: str, n: int) -> float:
    seen: Counter[tuple[str, ...]] = Counter()
    characters = overlapping = 0
    words = text.split()
    for gram in zip(*(words[i:] for i in range(n)), strict=False):
        seen[gram] += 1
        if seen[gram] > 1:
            characters += len("".join(gram[overlapping:])) + min(n - overlapping, n - 1)
            overlapping = n
        overlapping = max(overlapping - 1, 0)
    return characters / len(text)


def test_duplicate_n_grams_are_judged_alike_in_most_texts() -> None:
    params = "{n: 5, max_repeating_duplicate_ngram_ratio: 0.15}"
    text = f"filters: [{{name: nemo_curator.RepeatingDuplicateNGramsFilter, params: {params}}}]"
    done = migrated(nemo_curator, text)
    expected = [duplicate_n_grams(text, 5) <= 0.15 for text in web_texts()]
    same = sum(a == b for a, b in zip(kept(done.steps), expected, strict=True))
    assert same >= 180 and expected.count(False) > 20  # many are near the limit
    assert "splits punctuation" in done.remarks[0].message


def test_filters_of_one_rule_each_are_one_step_with_the_other_rules_off() -> None:
    text = """filters:
- name: nemo_curator.filters.UrlsFilter
- name: nemo_curator.filters.RepeatingTopNGramsFilter
  params: {n: 2, max_repeating_ngram_ratio: 0.2}
- name: nemo_curator.filters.NumbersFilter
  params:
    max_number_to_text_ratio: 0.5
- name: nemo_curator.filters.RepeatingTopNGramsFilter
  params: {n: 3, max_repeating_ngram_ratio: 0.18}
- name: nemo_curator.filters.BoilerPlateStringFilter
"""
    done = migrated(nemo_curator, text)
    ratios, repetition = done.steps
    assert settings(ratios) == {"max": {"urls": 0.2, "digits": 0.5}, "profile": "none"}
    assert [each.origin for each in ratios.settings[0].value] == [  # type: ignore[attr-defined]
        "UrlsFilter.max_url_to_text_ratio: default of NeMo Curator 0.9",
        "line 7: NumbersFilter.max_number_to_text_ratio",
    ]
    assert settings(repetition)["max_top_n_gram_chars"] == {"2": 0.2, "3": 0.18}
    assert settings(repetition)["max_duplicate_lines"] == 1
    assert (done.mapped, done.total) == (4, 5)


def test_quotation_marks_around_a_text_are_removed_as_theirs() -> None:
    script = "from nemo_curator import Modify\nModify(QuotationRemover())"
    texts = ['"a b"', '"a"\nb"', '"a\n"b"', '""', 'a"']
    removed = edited(migrated(nemo_curator, script, "main.py").steps, texts)
    assert removed == ["a b", '"a"\nb"', 'a\n"b', '""', 'a"']


def test_fuzzy_deduplication_has_their_bands_and_their_defaults() -> None:
    done = migrated(nemo_curator, "num_buckets: 8\nfalse_positive_check: true")
    assert settings(done.steps[0]) == {
        **{"shingle": "char", "ngram": 24, "bands": 8, "rows": 13, "verify": 0.8},
        "survivor": "first",
    }


def test_a_key_that_yaml_reads_as_true_is_no_fault() -> None:
    (step,) = migrated(nemo_curator, "num_buckets: 10\non: [push]").steps
    assert settings(step)["bands"] == 10


def test_the_calls_of_a_script_are_steps() -> None:
    script = """from nemo_curator import Modify, ScoreFilter, Sequential
LEAST = 80
pipeline = Sequential([
    Modify(UnicodeReformatter()),
    ScoreFilter(WordCountFilter(min_words=LEAST), text_field="text"),
    ScoreFilter(filter_obj=UrlsFilter(max_url_to_text_ratio=limit)),
    ScoreFilter(OwnFilter()),
    ScoreFilter(NumbersFilter(max_number_to_text_ratio=0.3), invert=True),
    Modify(NewlineNormalizer()),
])
"""
    done = migrated(nemo_curator, script, "main.py")
    assert [step.step for step in done.steps] == ["normalize", "ratios", "replace", "replace"]
    assert settings(done.steps[1])["min"] == {"words": 80}
    assert [(r.line, r.theirs) for r in done.remarks if r.unmapped] == [
        (8, "ScoreFilter(invert=True)"),
    ]
    (own,) = [r for r in done.remarks if r.theirs == "OwnFilter"]
    assert own.line == 7 and own.message.endswith("for the step python")
    assert (done.mapped, done.total) == (4, 5) and "digits" not in str(done.steps)
    assert any("max_url_to_text_ratio is not constant" in r.message for r in done.remarks)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("WordCountFilter(80, 500)", {"min": {"words": 80}, "max": {"words": 500}}),
        ("WordCountFilter(*(80, 500))", {"min": {"words": 80}, "max": {"words": 500}}),
        ("MeanWordLengthFilter(2)", {"min": {"word_length": 2}, "max": {"word_length": 10}}),
        ("RepeatedLinesFilter(0.6)", {"max_duplicate_lines": 0.4}),
        ("RepeatingTopNGramsFilter(3, 0.1)", {"max_top_n_gram_chars": {"3": 0.1}}),
        ("FastTextLangId('/m/lid.bin', 0.9)", {"model": "/m/lid.bin", "threshold": 0.9}),
        ("UnicodeReformatter(TextFixerConfig(uncurl_quotes=True))", {"quotes": True}),
    ],
)
def test_positional_arguments_are_in_the_recipe(call: str, expected: dict[str, object]) -> None:
    (step,) = migrated(nemo_curator, f"p = [ScoreFilter({call})]", "main.py").steps
    assert {**settings(step), **expected} == settings(step)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("RepeatedLinesFilter(args.ratio)", "max_repeated_line_fraction is not constant: set goph"),
        ("WordCountFilter(*limits)", "max_words is not constant: set ratios.max.words"),
        ("WordCountFilter(80, lang='zh')", "cuts words of this `lang`"),
        ("LongWordFilter(80, 'ja')", "cuts words of this `lang`"),
        ("NumbersFilter(0.1, 'en', 3)", "the value of argument 3 is not in the recipe"),
        ("UrlsFilter(**limits)", "the value of ** is not in the recipe"),
    ],
)
def test_arguments_that_are_not_in_the_recipe_are_named(call: str, says: str) -> None:
    done = migrated(nemo_curator, f"p = [ScoreFilter({call})]", "main.py")
    assert says in " ".join(map(str, done.remarks)) and done.mapped == 1


def test_an_inversion_by_position_is_not_mapped() -> None:
    script = "p = [ScoreFilter(UrlsFilter(), 'text', None, None, True)]"
    assert migrated(nemo_curator, script, "main.py").mapped == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("filters: 3\nx: nemo_curator", "filters must be a list"),
        ("filters:\n- 3", "their.yaml:2: a filter must be a mapping"),
        ("on: push", "neither filters nor a deduplication of NeMo Curator"),
        ("filters:\n- {name: 3}", "their.yaml:2: name must be a text"),
        (
            "filters:\n- name: UrlsFilter\n  params:\n    max_url_to_text_ratio: many",
            "their.yaml:4: UrlsFilter.max_url_to_text_ratio must be a number, not 'many'",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        migrated(nemo_curator, text)


def test_only_its_own_files_are_recognised() -> None:
    assert nemo_curator.recognises("import nemo_curator", Path("a.py"), None)
    assert not nemo_curator.recognises("steps: []", Path("a.yaml"), {"steps": []})
