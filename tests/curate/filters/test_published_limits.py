"""The numbers that papers and published code give, beside the place where they stand.

A reading of ours may differ by its variant. A number here changes with a source in hand, not with a
setting's default. All were read there, but for those marked (from memory).
"""

from __future__ import annotations

from typing import Any

import pytest

from curate.filters.c4 import C4, C4Paragraphs
from curate.filters.fineweb import FineWebQuality
from curate.filters.gopher import GopherQuality, GopherRepetition
from curate.filters.periodic import PeriodicRepetition
from curate.filters.refinedweb import NewlineRuns, RefinedWebLines
from curate.filters.tokens import STOP_WORDS
from curate.filters.url import UrlFilter
from curate.lab.filters.code import Code
from curate.lab.filters.oscar import EDGE, EDGE_BYTES, EDGE_SHARE, NOISE, TINY_LINES, Oscar
from curate.lab.filters.roots import MOST_WORDS, PARAMETERS, Parameters, RootsWords
from curate.lab.filters.wangchanberta import WangchanBERTa
from curate.steps.contracts import Step

# Documents within these stay: (least, most) by the column that is measured, None for no limit.
LIMITS: dict[str, tuple[Step, dict[str, tuple[float | None, float | None]]]] = {
    "Rae et al. 2021 (Gopher), appendix A1.1, quality filtering; gopher_quality_filter.py": (
        GopherQuality(variant="paper"),
        {
            "words": (50, 100_000), "word_length": (3, 10), "hash_ratio": (None, 0.1),
            "ellipsis_ratio": (None, 0.1), "bullet_lines": (None, 0.9),
            "ellipsis_lines": (None, 0.3), "alpha_words": (0.8, None), "stop_words": (2, None),
        },
    ),
    "Rae et al. 2021 (Gopher), table A1, as gopher_repetition_filter.py quotes it": (
        GopherRepetition(variant="paper"),
        {
            "duplicate_lines": (None, 0.30), "duplicate_paragraphs": (None, 0.30),
            "duplicate_line_chars": (None, 0.20), "duplicate_paragraph_chars": (None, 0.20),
            "top_2_gram_chars": (None, 0.20), "top_3_gram_chars": (None, 0.18),
            "top_4_gram_chars": (None, 0.16), "duplicate_5_gram_chars": (None, 0.15),
            "duplicate_6_gram_chars": (None, 0.14), "duplicate_7_gram_chars": (None, 0.13),
            "duplicate_8_gram_chars": (None, 0.12), "duplicate_9_gram_chars": (None, 0.11),
            "duplicate_10_gram_chars": (None, 0.10),
        },
    ),
    "Dolma, configs/dolma-v1_6/mixing/cc-head.yaml (n-grams as in table A1)": (
        GopherRepetition(variant="dolma"),
        {
            "duplicate_lines": (None, 0.30), "duplicate_line_chars": (None, 0.30),
            "top_2_gram_chars": (None, 0.20), "top_3_gram_chars": (None, 0.18),
            "top_4_gram_chars": (None, 0.16), "duplicate_5_gram_chars": (None, 0.15),
            "duplicate_6_gram_chars": (None, 0.14), "duplicate_7_gram_chars": (None, 0.13),
            "duplicate_8_gram_chars": (None, 0.12), "duplicate_9_gram_chars": (None, 0.11),
            "duplicate_10_gram_chars": (None, 0.10),
        },
    ),
    "Penedo et al. 2024 (FineWeb), section 3.6 (table 2 in E.4: duplicates 0.01)": (
        FineWebQuality(variant="paper"),
        {
            "lines": (1, None), "end_marks": (0.12, None), "short_lines": (None, 0.67),
            "duplicate_line_chars": (None, 0.1),
        },
    ),
    "DataTrove 0.10, fineweb_quality_filter.py": (
        FineWebQuality(variant="datatrove"),
        {
            "lines": (1, None), "end_marks": (0.12, None), "short_lines": (None, 0.67),
            "duplicate_line_chars": (None, 0.01), "newlines": (None, 0.3),
        },
    ),
    "Dolma, configs/dolma-v1_6/mixing/cc-head.yaml: a sequence 100 times in a row": (
        PeriodicRepetition(), {"times": (None, 100)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("source", LIMITS)
def test_documents_stay_within_the_limits_of(source: str) -> None:
    step, expected = LIMITS[source]
    found: dict[str, list[float | None]] = {}
    for limit in step.limits():
        found.setdefault(limit.column, [None, None])[limit.above] = limit.threshold
    assert {column: tuple(ends) for column, ends in found.items()} == expected


@pytest.mark.parametrize("source", LIMITS)
def test_a_document_at_a_limit_goes_where_the_source_says_at_most_or_at_least(source: str) -> None:
    """FineWeb's paper: <= 0.12, >= 0.67, >= 0.1; Dolma's mixer: >= 100; all others < and >."""
    step, _ = LIMITS[source]
    at = {limit.column for limit in step.limits() if limit.closed}
    if "(FineWeb)" in source:
        assert at == {"end_marks", "short_lines", "duplicate_line_chars"}
    else:
        assert at == ({"times"} if "100 times" in source else set())


SETTINGS: dict[str, tuple[Step, dict[str, Any]]] = {
    "Raffel et al. 2020 (C4), tensorflow_datasets/text/c4_utils.py": (
        C4(),
        {
            "min_words_per_line": 5, "min_sentences": 3, "max_word_chars": 1000,
            "max_page_chars": 190_000, "require_end_mark": True, "badwords_fraction": 1.0,
        },
    ),
    "Raffel et al. 2020, section 2.2, as DataTrove's c4_filters.py quotes it": (
        C4(variant="paper"), {"min_words_per_line": 3, "min_sentences": 5},
    ),
    "Xue et al. 2021 (mC4), section 3.1; c4_utils.py, as c4_filters.py has it": (
        C4Paragraphs(), {"min_paragraphs": 3, "min_chars": 200},
    ),
    "Penedo et al. 2024 (FineWeb), section 3.6, short lines": (
        FineWebQuality(), {"short_line_chars": 30},
    ),
    "Penedo et al. 2023 (RefinedWeb), appendix G.2; DCLM, refinedweb.yaml": (
        RefinedWebLines(), {"max_removed_words": 0.05, "short_line_words": 10},
    ),
    "DCLM, baselines_configs/refinedweb.yaml": (
        RefinedWebLines(), {"max_uppercase": 0.5, "max_numeric": 0.999999},
    ),
    "DCLM, mappers/modifiers.py, newline_removal_modifier": (NewlineRuns(), {"most": 2}),
    "Penedo et al. 2023 (RefinedWeb), appendix G.1; url_filter.py": (
        UrlFilter(), {"max_soft_words": 2},
    ),
    "Abadji et al. 2022 (OSCAR), section 3; ungoliant, src/filtering/record.rs": (
        Oscar(), {"long_chars": 100, "min_long_share": 0.6, "drop": ("noisy+tiny",)},
    ),
    "Soldaini et al. 2024 (Dolma), repetitions_taggers.py, MAX_PERIOD": (
        PeriodicRepetition(), {"max_period": 13},
    ),
    "Li et al. 2023 (StarCoder); bigcode-dataset, preprocessing/arguments.py and filtering.py": (
        Code(),
        {
            "max_line": 1000, "max_mean_line": 100, "min_alnum": 0.25, "min_html_text": 100,
            "min_html_share": 0.2, "max_data_chars": 5000,
        },
    ),
    "Li et al. 2023 (StarCoder), section 3.1 (from memory; its code has 100)": (
        Code(), {"min_data_chars": 50},
    ),
    "Lowphansirikul et al. 2021 (WangchanBERTa); thai2transformers, scripts/clean_data.py": (
        WangchanBERTa(), {"min_thai_chars": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("source", SETTINGS)
def test_defaults_are_the_numbers_of(source: str) -> None:
    step, expected = SETTINGS[source]
    assert {name: getattr(step, name) for name in expected} == expected


def test_gophers_stop_words_are_the_papers() -> None:
    """Rae et al. 2021, appendix A1.1; gopher_quality_filter.py, STOP_WORDS."""
    assert STOP_WORDS == ("the", "be", "to", "of", "and", "that", "have", "with")


def test_oscars_annotations_have_ungoliants_numbers() -> None:
    """src/transformers: tiny.rs, header.rs (share of lines, of short ones, bytes) and noisy.rs."""
    assert (TINY_LINES, EDGE, EDGE_SHARE, EDGE_BYTES, NOISE) == (5, 0.2, 0.5, 100, 0.5)


# parameters_filtering.py of bigscience-workshop/data-preparation (Laurençon et al. 2022):
# length_word_max_cutoff, number_words_min_cutoff, character_repetition_length and _max_cutoff,
# word_repetition_max_cutoff, special_characters_max_cutoff, stopwords_min_cutoff,
# flagged_words_max_cutoff, word_repetition_length.
ROOTS = """
ar 25 20 10 0.20  0.34 0.30 0.07   0.03  5
bn 20 33 10 0.13  0.21 0.45 0.002  0.001 5
ca 20 15 10 0.2   0.4  0.25 0.25   0.1   5
en 25 20 10 0.106 0.19 0.4  0.3    0.01  5
es 25 16 10 0.14  0.25 0.34 0.4    0.01  5
eu 28 8  10 0.20  0.40 0.31 0.05   0.1   5
fr 45 13 10 0.14  0.13 0.34 0.27   0.008 5
hi 25 38 10 0.18  0.47 0.45 0.01   0.005 5
id 30 15 10 0.15  0.20 0.34 0.15   0.01  5
pt 19 19 10 0.25  0.98 0.35 0.2    0.007 5
ur 20 25 10 0.19  0.5  0.25 0.01   0.025 7
vi 25 30 10 0.15  0.20 0.34 0.08   0.005 5
zh 0  1  3  0.2   0.96 0.3  0.1691 0.001 5
"""


@pytest.mark.parametrize("line", ROOTS.split("\n")[1:-1])
def test_roots_parameters_are_those_of_its_code(line: str) -> None:
    lang, *numbers = line.split()
    pairs = {"vi": " ", "zh": ""}.get(lang)  # words_augmentation_join_char
    assert PARAMETERS[lang] == Parameters(*map(float, numbers), pairs)  # type: ignore[arg-type]


def test_roots_defaults_are_those_of_its_code() -> None:
    """parameters_filtering_default; number_words_max_cutoff; incorrect_word_substrings."""
    assert PARAMETERS[""] == Parameters(0, 10, 10, 0.2, 0.3, 0.4, 0.1, 0.1, 5)
    assert MOST_WORDS == 100_000
    assert RootsWords().address_parts == ("http", "www", ".com", "href", "//")
