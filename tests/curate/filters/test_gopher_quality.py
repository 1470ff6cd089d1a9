"""Gopher's quality rules: the kernels find what each variant's reference finds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.filters.gopher import GopherQuality
from curate.filters.tokens import Tokens, joined_tokens, split_tokens, symbol_tokens
from tests.curate.filters.filter_texts import JUNK, PROSE, applied, measured, real_texts, texts
from tests.curate.filters.reference_gopher import joined_words, quality, quality_rules, symbol_words

VARIANTS = ("paper", "datatrove", "dolma", "dclm")
COUNTS = {"words", "stop_words"}
# 49 words of which two are stop words; PLAIN + one word is kept by every variant.
PLAIN = "The man and the woman " + "slowly home " * 22


def check(values: list[str | None], variant: str) -> None:
    docs, rules = applied(GopherQuality(variant=variant), values)
    measures = measured(docs, "gopher_quality")
    for row, text in enumerate(values):
        want = quality(text or "", variant)
        assert measures[row] == want, (variant, text)
        assert rules[row] == quality_rules(want), (variant, text)


def found_words(tokens: Tokens, values: list[str]) -> list[list[str]]:
    """The tokens of every row as strings, from their starts and lengths."""
    data = "".join(values).encode()
    words = [
        data[a : a + 4 * n].decode(errors="ignore")[:n]
        for a, n in zip(tokens.start, tokens.chars, strict=True)
    ]
    return [words[a:z] for a, z in zip(tokens.rows[:-1], tokens.rows[1:], strict=True)]


def check_segmentations(values: list[str]) -> None:
    docs = documents({"text": values})
    for build, reference in (
        (split_tokens, str.split),
        (symbol_tokens, symbol_words),
        (joined_tokens, joined_words),
    ):
        tokens = build(docs)
        words = found_words(tokens, values)
        assert words == [reference(v) for v in values]
        flat = [w for row in words for w in row]
        pairs = set(zip(flat, tokens.hash.tolist(), strict=True))
        assert len(pairs) == len(set(flat)) == len({h for _, h in pairs}), "a hash a word"


def test_segmentations_of_junk_and_real_texts() -> None:
    check_segmentations([*JUNK, *real_texts()])


@settings(deadline=None, max_examples=80)
@given(st.lists(texts, max_size=4))
def test_segmentations_of_any_text(values: list[str]) -> None:
    check_segmentations(values)


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_find_what_the_reference_finds(variant: str) -> None:
    check([*JUNK, None, *real_texts()], variant)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(deadline=None, max_examples=80)
@given(st.lists(texts, max_size=4))
def test_kernels_find_what_the_reference_finds_in_any_text(variant: str, values: list[str]) -> None:
    check(values, variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_prose_is_kept_and_word_limit_is_fifty(variant: str) -> None:
    assert applied(GopherQuality(variant=variant), [PROSE, PLAIN, PLAIN + "then"])[1] == [
        set(),
        {"few_words"},
        set(),
    ]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("#" * 5 + " word" * 49, "hash_ratio"),  # 5 of 50 words: the limit itself
        ("... " * 5 + "word " * 45, "ellipsis_ratio"),
        ("- the word and word word word word\n" * 9 + "the word and\n", "bullet_lines"),
        ("the word and word...\n" * 3 + "the word and word\n" * 7, "ellipsis_lines"),
        ("word " * 40 + "12 " * 10, "alpha_words"),
        ("abc " * 60, "short_words"),
        ("abcdefghij " * 60, "long_words"),
        ("the and" + " word" * 60, "stop_words"),
    ],
)
def test_a_value_at_its_limit_is_kept_and_one_beyond_is_dropped(text: str, rule: str) -> None:
    beyond = {
        "hash_ratio": "# " + text,
        "ellipsis_ratio": "... " + text,
        "bullet_lines": "- bullet\n" + text,
        "ellipsis_lines": "end...\n" + text,
        "alpha_words": "12 " + text,
        "short_words": "ab " + text,
        "long_words": "abcdefghijk " + text,
        "stop_words": text.replace("and", "And"),
    }[rule]
    at_limit, over = applied(GopherQuality(), [text, beyond])[1]
    assert rule not in at_limit and rule in over


def test_too_many_words() -> None:
    text = "word " * 100_000
    assert "many_words" not in applied(GopherQuality(), [text])[1][0]
    assert "many_words" in applied(GopherQuality(), [text + "word"])[1][0]


def test_limits_are_settings() -> None:
    step = GopherQuality(min_words=0, min_word_length=0, min_alpha_words=0, min_stop_words=0)
    assert applied(step, ["1", "", None])[1] == [set(), set(), set()]


@pytest.mark.parametrize("variant", VARIANTS)
def test_columns_are_typed_and_empty_batches_pass(variant: str) -> None:
    step = GopherQuality(variant=variant)
    for values in ([], [None], [PROSE]):
        docs, _ = applied(step, values)
        for name in docs.table.column_names:
            if name.startswith("gopher_quality."):
                kind = docs.table.schema.field(name).type
                counts = name.split(".")[1] in COUNTS
                assert kind == (pa.int32() if counts else pa.float64()), name
        assert docs.table.num_rows == len(values)
        docs.split()


def test_marked_rows_are_measured_and_values_recorded() -> None:
    docs, _ = applied(GopherQuality(), ["only five words stand here", PROSE])
    _, rejected = docs.split()
    reason = rejected.to_pylist()[0]
    assert (reason["rule"], reason["value"], reason["threshold"]) == ("few_words", 5.0, 50.0)
    assert reason["gopher_quality.alpha_words"] == 1.0


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stop_word_followed_by_a_nul_is_another_word(variant: str) -> None:
    check(["the\x00", "the\x00 be\x00\x00 of", "\x00the", "THE\x00 the"], variant)
