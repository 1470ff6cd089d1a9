"""Patterns as tables: pieces as the regex engine of `tokenizers` cuts them, for any text."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tests.parameters import drawn
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.categories import categories, members
from tokenize_kit.pattern.named import DIGITS, PATTERNS, RIGHT, o200k, pattern_with
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
    data = np.frombuffer(bytearray().join(raw), np.uint8)
    ends, counts = cut_rows(data, offsets, tables)
    pieces_of_texts, at = [], 0
    for row, count in enumerate(counts):
        bounds = [offsets[row], *ends[at : at + count]]
        pieces_of_texts.append([bytes(data[a:z]).decode() for a, z in itertools.pairwise(bounds)])
        at += count
    return pieces_of_texts


def reference(patterns):
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence(splits)


ONIGURUMA = {f"{n}-{d}": pattern_with(n, d).parts for n in PATTERNS for d in DIGITS}
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

    @settings(max_examples=drawn(120), deadline=None)
    @given(TEXTS)
    def check(text):
        assert pieces(patterns, [text]) == [[p for p, _ in split.pre_tokenize_str(text)]]

    check()


def test_every_code_point_is_of_the_engine_s_category():
    """Letters and marks grow with every version of Unicode, and differ between libraries."""
    code_points = np.array([c for c in range(0x110000) if not 0xD800 <= c < 0xE000])
    text = "".join(map(chr, code_points))
    for name in ("L", "M"):
        member = members(name)[code_points]
        split = pre_tokenizers.Split(Regex(r"[^\p{L}]+".replace(r"\p{L}", _class(name))), "removed")
        matches = np.zeros(len(code_points), np.bool_)
        for _, (a, z) in split.pre_tokenize_str(text):
            matches[a:z] = True
        assert np.array_equal(member, matches), name
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
    "pattern, message",
    [
        (r"(?<!a)b", "this kind of group"),
        (r"(?!ab)c", "a look-ahead of more than one"),
        (r"a*?", "a lazy repetition"),
        (r"\bword", r"the escape \b"),
        (r"\p{Thay}+", "the property 'Thay'"),
        (r"a(b", "unclosed parenthesis"),
        (r"a)b", "unmatched closing"),
        (r"[a", "unclosed bracket"),
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
def test_unsupported_patterns_are_named(pattern, message):
    with pytest.raises(UnsupportedPattern, match=".*" + message.replace("\\", r"\\")):
        compile_pattern(pattern)


def test_a_pattern_cannot_grow_without_bounds():
    with pytest.raises(UnsupportedPattern, match="positions"):
        compile_pattern("(?:(?:a{1000}b){1000}c){9}")


PUBLISHED = ["gpt2", "o200k", "llama3", "qwen2", "deepseek"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_pattern_with_its_own_digits_is_the_published_one(name):
    pattern = pattern_with(name, PATTERNS[name].digits)
    assert pattern.parts == PATTERNS[name].parts
    assert pattern.gguf == PATTERNS[name].gguf
    assert bool(pattern.gguf) == (name != "o200k")  # llama.cpp's gpt-4o is another pattern


def test_the_name_for_gguf_is_of_what_comes_out():
    assert pattern_with("llama3", "single").gguf == "qwen2"
    assert not any(pattern_with(name, "triples-right").gguf for name in PATTERNS)


@settings(max_examples=drawn(120), deadline=None)
@given(TEXTS)
def test_cl100k_written_for_oniguruma_cuts_as_tiktoken_s_does(text):
    written = pattern_with("cl100k", "triples").parts
    assert pieces(written, [text]) == pieces(PATTERNS["cl100k"].parts, [text], "rust")


NUMBERS = st.lists(st.text(st.sampled_from("0123456789٣½Ⅳ²𝟘"), max_size=12), max_size=4)


@settings(max_examples=drawn(120), deadline=None)
@given(NUMBERS, st.sampled_from([" ", ".", "  ", "a", "\n"]))
def test_groups_from_the_right_are_those_of_the_regex_engine(numbers, between):
    text = between.join(numbers)
    split = reference([RIGHT])
    assert pieces([RIGHT], [text]) == [[p for p, _ in split.pre_tokenize_str(text)]]


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=60, deadline=None)
@given(NUMBERS, st.sampled_from([" ", ".", "  ", "a", "\n"]))
def test_a_number_is_grouped_from_the_right_in_any_pattern(name, numbers, between):
    text = between.join(numbers)
    groups = pieces(pattern_with(name, "triples-right").parts, [text])[0]
    wanted = []
    for run in ["".join(g) for _, g in itertools.groupby(text, str.isnumeric)]:
        if run[0].isnumeric():
            begin = len(run) % 3 or 3
            wanted += [run[:begin], *[run[k : k + 3] for k in range(begin, len(run), 3)]]
    assert [p for p in groups if p[0].isnumeric()] == wanted


@pytest.mark.parametrize("set_", [r"\d", r"\p{N}", r"\P{L}", r"\p{^L}"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_groups_of_any_size_and_set_are_counted_from_the_right(set_, size):
    pattern = rf"{set_}{{1,{size}}}(?=(?:{set_}{{{size}}})*(?!{set_}))"
    split = reference([pattern])
    texts = ["", "1", "12a", "a1234567", "12 123 1234", "٣٣٣٣٣x1", "!?" * 9]
    wanted = [[p for p, _ in split.pre_tokenize_str(text)] for text in texts]
    assert pieces([pattern], texts) == wanted


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{N}{1,3}(?=(?:\p{N}{2})*(?!\p{N}))",
        r"\p{N}{1,3}(?=(?:\p{L}{3})*(?!\p{N}))",
        r"\p{N}{1,3}(?=(?:\p{N}{3})+(?!\p{N}))",
        RIGHT + "|x",
    ],
)
def test_other_look_aheads_without_bound_are_refused(pattern):
    with pytest.raises(UnsupportedPattern, match="a look-ahead of more than one"):
        compile_pattern(pattern)


def test_a_long_run_of_digits_is_grouped_in_one_pass():
    groups = pieces([RIGHT], ["1" * 1_000_001])[0]
    assert (len(groups), groups[0], groups[-1]) == (333_334, "11", "111")


@settings(max_examples=drawn(120), deadline=None)
@given(TEXTS)
def test_metaspace_gives_a_word_the_space_before_it_as_the_library_does(text):
    """Up to newlines, at which ours ends a word."""
    text = text.replace("\r", "").replace("\n", "").replace("\u2581", "")
    theirs = pre_tokenizers.Metaspace(prepend_scheme="never").pre_tokenize_str(text)
    wanted = [piece.replace("\u2581", " ") for piece, _ in theirs]
    assert pieces(PATTERNS["metaspace"].parts, [text]) == [wanted]


@settings(max_examples=drawn(120), deadline=None)
@given(st.text(st.sampled_from([c for c in LETTERS if c not in "漢字"]), max_size=40))
def test_bert_cuts_where_bert_s_pre_tokeniser_cuts(text):
    """But for ideographs, which its normaliser puts spaces around."""
    theirs = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)
    ours = pieces(PATTERNS["bert"].parts, [text])[0]
    assert [p for p in ours if not p.isspace()] == [piece for piece, _ in theirs]


def test_named_patterns_cut_a_line_so():
    text = "Hey, a1  b\n\n漢字 ไทย"
    names = ("whitespace", "metaspace", "bert")
    cut = {name: pieces(PATTERNS[name].parts, [text])[0] for name in names}
    assert cut["whitespace"] == ["Hey,", " ", "a1", "  ", "b", "\n\n", "漢字", " ", "ไทย"]
    assert cut["metaspace"] == ["Hey,", " a1", " ", " b", "\n\n", "漢字", " ไทย"]
    assert cut["bert"] == ["Hey", ",", " ", "a1", "  ", "b", "\n\n", "漢", "字", " ", "ไทย"]
