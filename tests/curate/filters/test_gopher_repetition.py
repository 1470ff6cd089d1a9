"""Gopher's repetition rules: the kernels find what each variant's reference finds."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.filters.gopher import GopherRepetition
from tests.curate.filters.filter_texts import JUNK, PROSE, applied, measured, real_texts, texts
from tests.curate.filters.reference_gopher import repetition, repetition_rules

VARIANTS = ("paper", "datatrove", "dolma", "dclm")


def check(values: list[str | None], variant: str) -> None:
    docs, rules = applied(GopherRepetition(variant=variant), values)
    measures = measured(docs, "gopher_repetition")
    for row, text in enumerate(values):
        want = repetition(text or "", variant)
        assert measures[row] == want, (variant, text)
        assert rules[row] == repetition_rules(text or "", want, variant), (variant, text)


def few_word_texts() -> list[str]:
    """Random texts of few different words, in which n-grams of every length repeat."""
    rng = random.Random(0)
    out = []
    for _ in range(200):
        words = [f"w{i}" * (1 + i % 3) for i in range(rng.randint(1, 30))]
        length = rng.randint(1, 120)
        out.append("".join(rng.choice(words) + rng.choice("    \n") for _ in range(length)))
    return out


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_find_what_the_reference_finds(variant: str) -> None:
    check([*JUNK, None, *few_word_texts(), *real_texts()], variant)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(deadline=None, max_examples=80)
@given(st.lists(texts, max_size=4))
def test_kernels_find_what_the_reference_finds_in_any_text(variant: str, values: list[str]) -> None:
    check(values, variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_prose_is_kept_and_repeated_prose_is_dropped(variant: str) -> None:
    kept, twice = applied(GopherRepetition(variant=variant), [PROSE, PROSE + "\n" + PROSE])[1]
    assert kept == set()
    assert {"duplicate_line_chars", "duplicate_5_gram_chars", "duplicate_10_gram_chars"} <= twice


def test_the_shortened_preset_of_dolma_fires_here() -> None:
    # The published mixer configuration names columns that its tagger does not write.
    rules = applied(GopherRepetition(variant="dolma"), ["buy now " * 200])[1][0]
    assert {"top_2_gram_chars", "top_3_gram_chars", "top_4_gram_chars"} <= rules


@pytest.mark.parametrize(("copies", "others", "fires"), [(4, 7, False), (5, 7, True)])
def test_datatrove_counts_repetitions_after_the_first(
    copies: int, others: int, fires: bool
) -> None:
    lines = ["again"] * copies + [f"line {i}" for i in range(others)]  # 3 of 11, 4 of 12
    rules = applied(GopherRepetition(), ["\n".join(lines)])[1][0]
    assert ("duplicate_lines" in rules) is fires


def test_a_share_at_its_limit_is_kept() -> None:
    lines = ["again"] * 4 + [f"line {i}" for i in range(6)]  # 3 of 10
    assert "duplicate_lines" not in applied(GopherRepetition(), ["\n".join(lines)])[1][0]
    text = "aa bb " + "x" * 19  # the first 2-gram: 5 of 25 characters
    step = GopherRepetition(max_top_n_gram_chars={2: 0.20})
    longer = "aa " + "x" * 19
    assert applied(step, ["aa bb" + " " * 20])[1][0] == set()
    assert applied(step, ["aa bb" + " " * 19])[1][0] == {"top_2_gram_chars"}
    assert len(text) == 25 and applied(step, [text])[1][0] == set()
    assert applied(step, [longer])[1][0] == {"top_2_gram_chars"}


def test_variants_count_the_same_page_differently() -> None:
    lines = ["again and again"] * 3 + [f"number {i} is another line" for i in range(6)]
    text = "\n".join(lines)
    values = {}
    for variant in VARIANTS:
        docs, _ = applied(GopherRepetition(variant=variant), [text])
        values[variant] = docs.table["gopher_repetition.duplicate_lines"][0].as_py()
    assert values == {"paper": 2 / 9, "datatrove": 2 / 9, "dolma": 3 / 9, "dclm": 3 / 9}


@pytest.mark.parametrize("variant", VARIANTS)
def test_columns_are_typed_and_empty_batches_pass(variant: str) -> None:
    step = GopherRepetition(variant=variant)
    for values in ([], [None], [PROSE]):
        docs, _ = applied(step, values)
        names = [n for n in docs.table.column_names if n.startswith("gopher_repetition.")]
        assert len(names) == (11 if variant == "dolma" else 13)
        assert {docs.table.schema.field(n).type for n in names} == {pa.float64()}
        docs.split()


def test_rows_do_not_depend_on_their_batch() -> None:
    values = [*JUNK, *few_word_texts()[:40]]
    docs, _ = applied(GopherRepetition(), values)
    for row in (3, 21, 30, len(values) - 1):
        alone, _ = applied(GopherRepetition(), [values[row]])
        for name in alone.table.column_names:
            if name.startswith("gopher_repetition."):
                assert np.array_equal(alone.table[name][0].as_py(), docs.table[name][row].as_py())
