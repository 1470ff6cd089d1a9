"""Keys of passages: folded bytes are those of str.lower, hashes those of MurmurHash3."""

from __future__ import annotations

import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.text.folding import (
    CCNET_CONTROLS,
    CCNET_PUNCTUATION,
    GONE,
    LOOK,
    Folding,
    ccnet_folding,
    ccnet_normal,
    fold,
    folding,
    lower_folding,
    lower_table,
)
from tests.callable_kernels import callable_kernel


def folded(text: str, how: Folding | None = None) -> str | None:
    data = np.frombuffer(bytearray(text.encode()), np.uint8)
    out = np.empty(2 * len(data) + 1, np.uint8)
    n = callable_kernel(fold)(data, 0, len(data), lower_folding() if how is None else how, out)
    return None if n == LOOK else out[:n].tobytes().decode()


def test_every_character_is_folded_as_str_lower_does_it():
    not_folded = []
    for code in range(sys.maxunicode + 1):
        if 0xD800 <= code < 0xE000:
            continue
        letter = chr(code)
        lowered = folded(letter) if code < 0x30000 or code % 4096 < 64 else letter.lower()
        if lowered is None:
            not_folded.append(letter)
        else:
            assert lowered == letter.lower(), hex(code)
    assert not_folded == ["İ", "Σ"]


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=80))
def test_any_text_is_folded_as_str_lower_does_it(text):
    lowered = folded(text)
    assert lowered == text.lower() or (lowered is None and ("Σ" in text or "İ" in text))


# Runs of ASCII are folded eight bytes at a time: lengths around eight, and what breaks a run.
mixed = st.lists(
    st.text(st.characters(codec="ascii"), max_size=20)
    | st.sampled_from(["é", "“", "１", "٣", "\x7f", "\t", "日", "Ⅷ", "►", "Σ", "İ", "ſ"]),
    max_size=6,
).map("".join)


@settings(deadline=None, max_examples=400)
@given(mixed)
def test_ccnets_normal_form_is_the_same_on_bytes(text):
    stripped = text.strip()
    lowered = folded(stripped, ccnet_folding())
    assert lowered == ccnet_normal(text) or (lowered is None and ("Σ" in text or "İ" in text))
    lowered = folded(stripped)
    assert lowered == stripped.lower() or (lowered is None and ("Σ" in text or "İ" in text))


def test_every_ascii_byte_is_folded_alike_in_a_run_of_eight_and_alone():
    for how in (lower_folding(), ccnet_folding()):
        for code in range(128):
            alone = folded(chr(code), how)
            eight = folded("a" * 7 + chr(code), how)
            assert eight == "a" * 7 + alone, code


def test_ccnets_table_deletes_its_34_characters_and_controls_and_makes_digits_zeros():
    assert len(CCNET_PUNCTUATION) == 34 and len(CCNET_CONTROLS) == 65
    table = ccnet_folding().table
    for code in (*map(ord, CCNET_PUNCTUATION), *CCNET_CONTROLS):
        # The list has a full-width digit one, which is a digit before it is deleted.
        assert table[code] == (48 if chr(code).isdecimal() else GONE)
    for code in range(sys.maxunicode + 1):
        if chr(code).isdecimal():
            assert table[code] == 48
    assert ccnet_normal("Héllo,  World 1234.\t— “ok”") == "héllo,  world 0000. ok"


def test_ascii_with_special_folding_is_processed_by_character():
    table = lower_table().copy()
    table[ord(",")] = -1
    assert folding(table).floor == 128
    assert folded("A, B, and so on, for more than eight", folding(table)) == (
        "a b and so on for more than eight"
    )
