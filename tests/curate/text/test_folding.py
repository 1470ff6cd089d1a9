"""Keys of passages: folded bytes are those of str.lower, hashes those of MurmurHash3."""

from __future__ import annotations

import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.text.folding import LOOK, fold, lower_table


def folded(text: str) -> str | None:
    data = np.frombuffer(text.encode(), np.uint8)
    out = np.empty(2 * len(data) + 1, np.uint8)
    n = fold(data, 0, len(data), lower_table(), out)
    return None if n == LOOK else out[:n].tobytes().decode()


def test_every_character_is_folded_as_str_lower_does_it():
    left = []
    for code in range(sys.maxunicode + 1):
        if 0xD800 <= code < 0xE000:
            continue
        letter = chr(code)
        found = folded(letter) if code < 0x30000 or code % 4096 < 64 else letter.lower()
        if found is None:
            left.append(letter)
        else:
            assert found == letter.lower(), hex(code)
    assert left == ["İ", "Σ"]


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=80))
def test_any_text_is_folded_as_str_lower_does_it(text):
    found = folded(text)
    assert found == text.lower() or (found is None and ("Σ" in text or "İ" in text))


def test_a_table_may_take_characters_away():
    table = lower_table().copy()
    table[ord(",")] = -1
    data = np.frombuffer(b"A, B", np.uint8)
    out = np.empty(8, np.uint8)
    assert out[: fold(data, 0, 4, table, out)].tobytes() == b"a b"
