"""Words by Unicode's default boundaries: the annex's own rules, a peer, real texts."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from uniseg.wordbreak import word_break, words

from curate.text.uax29 import CLASSES, PICTOGRAPH, UNICODE, WHITE, class_table, uax_words

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("LLMCURATE_SHARED", ROOT.parent / "shared"))
LANGUAGES = SHARED / "corpora/langid/langid-dev.jsonl.gz"
BLANK = regex.compile(r"\p{White_Space}+")
# UAX #29 section 4, table 3 and the rules' own examples, by what they are about.
CASES = [
    (
        "The quick (“brown”) fox can’t jump 32.3 feet, right?",
        "The|quick|(|“|brown|”|)|fox|can’t|jump|32.3|feet|,|right|?",
    ),
    ("3a A3 1,234.5 1,a 3.a a.b a..b", "3a|A3|1,234.5|1|,|a|3|.|a|a.b|a|.|.|b"),
    ("snake_case __init__ _ 5_6", "snake_case|__init__|_|5_6"),
    ("'quoted' rock'n'roll l’été", "'|quoted|'|rock'n'roll|l’été"),
    ("a\r\nb\n\nc\rd", "a|b|c|d"),
    ("你好，世界 カタカナ ひら 한국어", "你|好|，|世|界|カタカナ|ひ|ら|한국어"),
    ("ab\u0301c e\u0301'\u0301x \u0301a", "ab\u0301c|e\u0301'\u0301x| \u0301|a"),
    ("👨\u200d👩\u200d👧 👍🏽! a\u200d🛑", "👨\u200d👩\u200d👧|👍🏽|!|a\u200d🛑"),
    ("🇩🇪🇫🇷🇮", "🇩🇪|🇫🇷|🇮"),
    ("צה\"ל ב' א'ב \"a", "צה\"ל|ב'|א'ב|\"|a"),
    ("a\u00a0b\u2003c\u3000d", "a|b|c|d"),
    ("\x00a\x1c", "\x00|a|\x1c"),
    ("", ""),
    (" \t\n", ""),
]


def ours(texts: list[str]) -> list[list[str]]:
    data = [t.encode() for t in texts]
    offsets = np.cumsum([0, *map(len, data)]).astype(np.int64)
    whole = b"".join(data)
    cuts = uax_words(np.frombuffer(bytearray(whole), np.uint8), offsets)
    cut = [whole[a:z].decode() for a, z in zip(cuts.start, cuts.end, strict=True)]
    return [cut[cuts.rows[r] : cuts.rows[r + 1]] for r in range(len(texts))]


def theirs(text: str) -> list[str]:
    return [w for w in words(text) if w and not BLANK.fullmatch(w)]


def same_class(code: int) -> bool:
    name = word_break(chr(code)).name.replace("_", "").lower()
    return name == CLASSES[class_table()[code] & 31].replace("_", "").lower()


@pytest.mark.parametrize("text, want", CASES)
def test_words_are_those_of_the_annex(text, want):
    expected = want.split("|") if want else []
    assert ours([text]) == [expected] == [theirs(text)]


def samples() -> list[str]:
    """Characters of every class that the peer's version of Unicode knows by the same class."""
    draw = random.Random(5)
    table = class_table()
    letters = []
    for kind in (*range(len(CLASSES)), PICTOGRAPH, WHITE):
        has = table & kind if kind >= PICTOGRAPH else (table & 31) == kind
        codes = [c for c in np.flatnonzero(has).tolist() if not 0xD800 <= c < 0xE000]
        some = [*codes[:3], *draw.sample(codes, min(len(codes), 6))]
        letters += [chr(c) for c in some if same_class(c)]
    return letters


@settings(deadline=None, max_examples=150)
@given(st.lists(st.text(st.sampled_from(samples()), max_size=14), min_size=1, max_size=30))
def test_any_characters_are_cut_as_by_the_peer_and_rows_do_not_touch(texts):
    assert ours(texts) == [theirs(t) for t in texts]


@pytest.mark.skipif(not LANGUAGES.exists(), reason="no ../shared/corpora/langid")
def test_real_texts_of_161_languages_are_cut_as_by_the_peer():
    with gzip.open(LANGUAGES, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    picked: dict[str, list[str]] = {}
    for row in rows[::3]:
        some = picked.setdefault(row["lang"], [])
        if len(some) < 9:
            some.append(row["text"])
    texts = [t for some in picked.values() for t in some]
    assert len(picked) > 150
    wrong = [t for t, cut in zip(texts, ours(texts), strict=True) if cut != theirs(t)]
    assert wrong == []


def test_the_table_is_unicodes_of_the_version_it_names():
    # Pictographs and white space are the same in all versions since 12.
    table = class_table()
    assert UNICODE.split(".")[0].isdigit() and int(UNICODE.split(".")[0]) >= 16
    assert {chr(c) for c in np.flatnonzero(table & WHITE)} == {
        chr(c) for c in range(0x110000) if BLANK.fullmatch(chr(c))
    }
    same = [c for c in range(0x3000) if same_class(c)]
    assert len(same) > 0x3000 - 200  # what versions after the peer's added or moved


def test_a_words_hash_is_that_of_its_bytes_wherever_it_stands():
    def mix(v: int) -> int:
        v ^= v >> 33
        v = v * 0xFF51AFD7ED558CCD % 2**64
        v ^= v >> 33
        v = v * 0xC4CEB9FE1A85EC53 % 2**64
        return v ^ (v >> 33)

    text = "Der Fluß, der Fluß\x00\x00x fließt.\n"
    data = np.frombuffer(bytearray(text.encode()), np.uint8)
    cuts = uax_words(data, np.array([0, len(data)], np.int64))
    for a, z, value in zip(cuts.start, cuts.end, cuts.hash.tolist(), strict=True):
        want = 0xD1B54A32D192ED03
        for b in data[a:z].tolist():
            want = (want ^ b) * 0x9E3779B97F4A7C15 % 2**64
        assert value == mix(want)
    first, second = (
        uax_words(np.frombuffer(bytearray(t.encode()), np.uint8), np.array([0, len(t.encode())]))
        for t in ("\x00\u0301", "\u0301")
    )
    assert len(first.hash) == len(second.hash) == 1 and first.hash[0] != second.hash[0]


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=40))
def test_bytes_that_are_not_utf8_are_cut_into_something(data):
    cuts = uax_words(np.frombuffer(bytearray(data), np.uint8), np.array([0, len(data)], np.int64))
    assert (cuts.start < cuts.end).all() and (cuts.start[1:] >= cuts.end[:-1]).all()
    assert not len(cuts.end) or cuts.end[-1] <= len(data)
