"""Pieces that stay within a script, and pieces that end where grapheme clusters end."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tests.parameters import drawn, mostly_slow
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.categories import SCRIPTS, scripts
from tokenize_kit.pattern.named import PATTERNS, SCRIPT_BOUNDARIES, graphemes, pattern_with
from tokenize_kit.pattern.scan import cut_rows

LETTERS = "aZéжΩ漢かカーกำ่ລຳहि्क한가م\u064b١0 \t\n\r.,!/ℹ❤😀👩🇹🇭🏻🏽1#'s"
LETTERS += (
    "\u200c\u200d\ufe0f\u20e3\u0301\u00a0\u0600\u06dd\U000e0061\u200b\uff9e\u0d4e\ue000\u0378"
)
TEXTS = st.one_of(
    st.text(st.sampled_from(LETTERS), max_size=24),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
)


def pieces(parts, text):
    tables = tuple(compile_pattern(part).kernel for part in parts)
    raw = text.encode()
    ends, _ = cut_rows(np.frombuffer(bytearray(raw), np.uint8), np.array([0, len(raw)]), tables)
    return [raw[a:z].decode() for a, z in itertools.pairwise([0, *ends])]


@pytest.mark.parametrize("name", mostly_slow(["Thai", "Inherited"]))
def test_every_code_point_is_of_the_engine_s_script(name):
    code_points = np.array([c for c in range(0x110000) if not 0xD800 <= c < 0xE000])
    split = pre_tokenizers.Split(Regex(rf"[^\p{{{name}}}]+"), "removed")
    matches = np.zeros(len(code_points), np.bool_)
    for _, (a, z) in split.pre_tokenize_str("".join(map(chr, code_points))):
        matches[a:z] = True
    assert np.array_equal(scripts()[code_points] == SCRIPTS.index(name), matches)


def test_a_property_of_a_script_is_one_of_a_pattern():
    assert pieces([r"\p{Thai}+|\P{Thai}+"], "abก่ข c") == ["ab", "ก่ข", " c"]


@settings(max_examples=drawn(150), deadline=None)
@given(TEXTS)
def test_the_table_of_scripts_cuts_as_the_regex_engine_cuts(text):
    split = pre_tokenizers.Split(Regex(SCRIPT_BOUNDARIES), "isolated")
    assert pieces([SCRIPT_BOUNDARIES], text) == [p for p, _ in split.pre_tokenize_str(text)]


@settings(max_examples=drawn(150), deadline=None)
@given(TEXTS)
def test_no_piece_spans_two_scripts_and_none_is_cut_within_one(text):
    cut = pieces([SCRIPT_BOUNDARIES], text)
    shared = {SCRIPTS.index("Common"), SCRIPTS.index("Inherited")}
    sets = [{int(scripts()[ord(c)]) for c in piece} - shared for piece in cut]
    assert all(len(of_piece) == 1 for of_piece in sets) or sets in ([], [set()])
    assert all(a != b for a, b in itertools.pairwise(sets))


def test_what_scripts_share_goes_with_what_precedes():
    assert pieces([SCRIPT_BOUNDARIES], " a1 b กx, 漢,") == [" a1 b ", "ก", "x, ", "漢,"]
    parts = [*PATTERNS["o200k"].parts, SCRIPT_BOUNDARIES]
    assert pieces(parts, "the ไทยword 12") == ["the", " ไทย", "word", " ", "12"]


def clusters_cut(parts, text):
    """Return True if a piece ends within a grapheme cluster."""
    ends = {sum(map(len, pieces(parts, text)[:k])) for k in range(len(text) + 1)}
    return not ends <= {0, *(m.end() for m in regex.finditer(r"\X", text))}


@pytest.mark.parametrize("digits", ["single", "triples", "free"])
def test_no_piece_of_graphemes_ends_within_a_cluster(digits):
    parts = pattern_with("graphemes", digits).parts

    @settings(max_examples=drawn(250), deadline=None)
    @given(TEXTS)
    def check(text):
        assert not clusters_cut(parts, text)

    check()


def test_patterns_that_cut_clusters_and_how():
    """The clusters that patterns cut are those that the documentation names."""
    texts = {
        "marks": "ที่ हिन्दी",
        "joiner": "می‌خواهم",
        "keycap": "1️⃣",
        "emoji": "❤️‍🔥",
        "family": "👩‍👩‍👧",
    }
    cut = {
        name: {kind for kind, text in texts.items() if clusters_cut(pattern.parts, text)}
        for name, pattern in PATTERNS.items()
        if name not in ("cl100k", "bert")
    }
    assert clusters_cut(PATTERNS["whitespace"].parts, " \u0301")
    assert cut["graphemes"] == cut["whitespace"] == cut["metaspace"] == set()
    assert "marks" in cut["gpt2"] & cut["llama3"] & cut["qwen2"]
    assert "marks" not in cut["o200k"] | cut["deepseek"]
    assert all(cut[name] & {"joiner", "keycap"} for name in ("gpt2", "llama3", "o200k", "deepseek"))


def test_graphemes_cuts_plain_text_as_o200k_does():
    text = "The quick  brown fox's 12 jumps!!\n\n  ที่นี่ हिन्दी iPhone HTMLParser\t(x) 漢字かな"
    single = pattern_with("o200k", "single").parts
    assert pieces([graphemes(r"\p{N}")], text) == pieces(single, text)
