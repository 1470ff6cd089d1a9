"""The kernels behind the URL filter find what plain Python finds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.filters.url_kernel import Folded, automaton, find_words, fold, fold_all, normal_word
from curate.filters.url_lists import (
    domain_hits,
    exact_hits,
    hashes,
    key_places,
    url_keys,
)
from curate.text.buffers import text_buffers
from curate.text.words import character_tables
from tests.curate.doubling import grows_linearly
from tests.curate.filters.reference_url import address, listed_domain, subwords, whole_words

PIECES = [
    *("http://", "https://", "HTTP:", "//", "\\\\", "/", "\\", "?", "#", "@", ":", ":80", "::1"),
    *("[", "]", ".", "..", "www.", "bad.example", "Bad", "EXAMPLE", "xn--", "xn--p1ai", "münchen"),
    *("%", "%2", "%2F", "%2e", "%41", "%zz", "%C3%A4", "%ff", "%00", "&", "=", "-", "_", "+"),
    *(" ", "\t", "\n", "\x00", "\x1f", "\x7f", "。", "．", "ä", "ß", "İ", "ǅ", "Ａ", "日本", "ไทย"),
    *("sex", "SEX", "sexy", "1", "18", "色情", "порно", "ПОРНО", "a\u0308", "\u0301", "utm_x=1"),
    *("?ref", "?feed", "?utm_", "red", "light", "Red-Light", "🙂", "\u200b", "\ufffd", "mailto:"),
]
urls = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=40)
DOMAINS = {"bad.example", "example", "рф", "münchen", "a", "bad"}
WORDS = sorted({"sex", "sexy", "1", "18sex", "色情", "порно", "red light", "ä", "a", "ss", "e"})
PARTS = sorted({"sex", "redlight", "色", "порно", "ex", "dexample", "11"})


def folded(values: list[str]) -> Folded:
    return fold_all(*text_buffers(pa.array(values, pa.large_string())))


def keys(values: set[str]) -> np.ndarray:
    array = pa.array(sorted(values), pa.large_string())
    data, offsets = text_buffers(array)
    return np.unique(hashes(data, offsets[:-1], offsets[1:]))


@settings(deadline=None, max_examples=600)
@given(st.lists(urls, max_size=4))
def test_any_url_is_folded_as_the_reference_folds_it(values: list[str]) -> None:
    f = folded(values)
    for row, url in enumerate(values):
        cuts = (f.start[row], f.host_end[row], f.path_end[row], f.end[row])
        parts = tuple(f.text(a, b) for a, b in pairwise(cuts))
        assert parts == fold(url), url


@settings(deadline=None, max_examples=300)
@given(st.lists(urls, max_size=4))
def test_domains_and_pages_are_looked_up_as_the_reference_does(values: list[str]) -> None:
    f = folded(values)
    at = domain_hits(f.data, f.start, f.host_end, keys(DOMAINS))
    first, last = key_places(f)
    listed = keys({address(u) for u in values[::2]})
    hits = exact_hits(f.data, first, last, listed)
    for row, url in enumerate(values):
        domain = f.text(at[row], f.host_end[row]) if at[row] >= 0 else None
        assert domain == listed_domain(url, DOMAINS), url
        assert f.text(first[row], last[row]) == address(url), url
        want = address(url) in {address(u) for u in values[::2]} and address(url) != ""
        assert hits[row] == want, url


@settings(deadline=None, max_examples=600)
@given(st.lists(urls, max_size=4))
def test_words_are_found_as_the_reference_finds_them(values: list[str]) -> None:
    f = folded(values)
    kinds, _ = character_tables()
    for patterns, whole, reference in ((WORDS, True, whole_words), (PARTS, False, subwords)):
        a = automaton(patterns)
        rows, which = find_words(
            f.data, f.start, f.end, kinds, a.step, a.kind, a.pattern, a.link, a.size, whole
        )
        for row, url in enumerate(values):
            matches = [patterns[p] for p in which[rows == row]]
            assert len(matches) == len(set(matches))
            assert set(matches) == reference(url, patterns), (url, whole)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text("abAB", min_size=1, max_size=5), min_size=1, max_size=8), st.text("ab"))
def test_the_automaton_finds_every_pattern_in_overlapping_text(
    patterns: list[str], text: str
) -> None:
    normal = sorted({normal_word(p, "") for p in patterns})
    f = folded(["/" + text])
    a = automaton(normal)
    kinds, _ = character_tables()
    _, which = find_words(
        f.data, f.start, f.end, kinds, a.step, a.kind, a.pattern, a.link, a.size, False
    )
    assert {normal[p] for p in which} == {p for p in normal if p in text}


def test_more_hits_than_room_at_first() -> None:
    f = folded(["/a-b-c"] * 100)
    a = automaton(["a", "b", "c"])
    kinds, _ = character_tables()
    rows, which = find_words(
        f.data, f.start, f.end, kinds, a.step, a.kind, a.pattern, a.link, a.size, True
    )
    assert rows.tolist() == sorted(list(range(100)) * 3) and which.tolist() == [0, 1, 2] * 100


def test_entries_are_put_into_the_form_of_urls() -> None:
    assert normal_word(" Red_Light! ") == "red light"
    assert normal_word("Ball-Gag", "") == "ballgag"
    assert normal_word("ＳＥＸ") == "sex" and normal_word("größe") == "grösse"
    assert normal_word("---") == ""


def test_the_www_of_a_host_that_is_nothing_else_stays() -> None:
    f = folded(["http://www./", "http://www.a/"])
    first, last = url_keys(f.data, f.start, f.host_end, f.path_end)
    assert [f.text(a, b) for a, b in zip(first, last, strict=True)] == ["www", "a"]


def test_hosts_without_end_take_linear_time() -> None:
    known = keys(DOMAINS)

    def hits(url: str) -> list[int]:
        f = folded([url])
        return domain_hits(f.data, f.start, f.host_end, known).tolist()

    long = "http://" + "a." * 4000 + "bad.example"
    assert folded([long]).data[hits(long)[0] :].tobytes() == b"bad.example"
    assert grows_linearly(hits, lambda n: "http://" + "b." * (n // 2), 20_000)
    assert grows_linearly(fold, lambda n: "http://xn--" + "a" * n, 10_000)
