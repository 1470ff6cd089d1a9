"""Patterns as tables: pieces as the regex engine of `tokenizers` cuts them, for any text."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.categories import categories, members
from tokenize_kit.pattern.named import PATTERNS, o200k
from tokenize_kit.pattern.parse import UnsupportedPattern
from tokenize_kit.pattern.scan import cut_rows

# Letters that the patterns tell apart, and those on which engines have differed.
LETTERS = "aAbZzſKé'sStTrevmlLdD 0123٣½Ⅳ²  \t\n\r\x0b\x85\u3000\u2028.,!/-_#$+^ก็ี่ไ漢字あア한"
LETTERS += "\u0301\u200d😀ǅª🇹\u00a0"
TEXTS = st.one_of(
    st.text(st.sampled_from(LETTERS), max_size=40),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)


def pieces(patterns, texts, dialect="oniguruma"):
    """The pieces of every text."""
    tables = tuple(compile_pattern(p, dialect).kernel for p in patterns)
    raw = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, raw)])
    data = np.frombuffer(b"".join(raw), np.uint8)
    ends, counts = cut_rows(data, offsets, tables)
    found, at = [], 0
    for row, count in enumerate(counts):
        bounds = [offsets[row], *ends[at : at + count]]
        found.append([bytes(data[a:z]).decode() for a, z in itertools.pairwise(bounds)])
        at += count
    return found


def reference(patterns):
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence(splits)


ONIGURUMA = {name: p.parts for name, p in PATTERNS.items() if name != "cl100k"}
ONIGURUMA |= {
    "o200k-single": (o200k(r"\p{N}"),),
    "digits-then-words": (r"\p{N}{1,3}", r" ?\p{L}+"),
    "gaps": (r"[a-z]+(?=\s)|\d\d",),
    "optional": (r"a?b{0,2}(?:cd|c)+|\s(?!x)|a{2}b*",),
    "negated": (r"[^\s\p{L}-]+|\P{Ll}|[\]\-a]",),
}


@pytest.mark.parametrize("name", ONIGURUMA)
def test_pieces_are_those_of_the_regex_engine(name):
    patterns = ONIGURUMA[name]
    split = reference(patterns)

    @settings(max_examples=300, deadline=None)
    @given(TEXTS)
    def check(text):
        assert pieces(patterns, [text]) == [[p for p, _ in split.pre_tokenize_str(text)]]

    check()


def test_every_code_point_is_of_the_engine_s_category():
    """L, M, N, P and S decide where the published patterns cut."""
    code_points = np.array([c for c in range(0x110000) if not 0xD800 <= c < 0xE000])
    text = "".join(map(chr, code_points))
    for name in ("L", "M", "N", "s"):
        known = members(name)[code_points]
        split = pre_tokenizers.Split(Regex(r"[^\p{L}]+".replace(r"\p{L}", _class(name))), "removed")
        found = np.zeros(len(code_points), np.bool_)
        for _, (a, z) in split.pre_tokenize_str(text):
            found[a:z] = True
        assert np.array_equal(known, found), name
    assert len(categories()) == 0x110000


def _class(name):
    return r"\s" if name == "s" else rf"\p{{{name}}}"


def test_possessive_repetition_gives_nothing_back():
    """tiktoken's cl100k_base; `{1,3}+` is possessive in Rust's regex and repeated in Oniguruma."""
    texts = ["1234567", "a  b ", "don'T I'll", "x   \n\n  y", "\ta", "  "]
    assert pieces(PATTERNS["cl100k"].parts, texts, "rust") == [
        ["123", "456", "7"],
        ["a", " ", " b", " "],
        ["don", "'T", " I", "'ll"],
        ["x", "   \n\n", " ", " y"],
        ["\ta"],
        ["  "],
    ]
    assert pieces((r"\p{N}{1,3}+",), ["1234567"]) == [["1234567"]]
    assert pieces((r"a*+ab|b",), ["aaab"], "rust") == [["aaa", "b"]]


@pytest.mark.parametrize(
    "pattern, said",
    [
        (r"(?<!a)b", "a group of a kind"),
        (r"(?!ab)c", "a look-ahead of more than one"),
        (r"a*?", "a lazy repetition"),
        (r"\bword", r"the escape \b"),
        (r"\p{Thai}+", "the property 'Thai'"),
        (r"a(b", "not closed"),
        (r"a)b", "not opened"),
        (r"[a", "not closed"),
        (r"a{2,1}", "repetition"),
        (r"a{9999}", "more than 1000"),
        (r"(a\1)", r"the escape \1"),
        (r"a$", "the end of a line"),
        (r"[a&&b]", "a bracket within a bracket"),
        (r"a*|b", "the empty text"),
        (r"+a", "a repetition of nothing"),
        ("a\\", "a backslash"),
        (r"(ab)++", "more than one character"),
    ],
)
def test_what_is_not_supported_is_named(pattern, said):
    with pytest.raises(UnsupportedPattern, match=".*" + said.replace("\\", r"\\")):
        compile_pattern(pattern)


def test_a_pattern_cannot_grow_without_bounds():
    with pytest.raises(UnsupportedPattern, match="places"):
        compile_pattern("(?:(?:a{1000}b){1000}c){9}")
