"""Character references against Python's reading of the HTML Standard."""

from __future__ import annotations

import html
from html.entities import html5

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from curate.extract.entities import entity_table, read_entity

TABLE = entity_table()


@njit
def _read(data, out, keys, values, text, ends):
    return read_entity(data, 0, len(data), out, keys, values, text, ends)


def read(reference: str) -> str:
    """A text that begins with an ampersand, its first reference replaced."""
    data = np.frombuffer(bytearray(reference.encode()), np.uint8)
    out = np.zeros(8, np.uint8)
    n, m = _read(data, out, *TABLE)
    return out[:m].tobytes().decode() + data[n:].tobytes().decode()


def test_every_named_reference_is_known() -> None:
    for name, text in html5.items():
        assert read(f"&{name}") == text
        # The scanner's buffer is a quarter larger than the page.
        assert len(text.encode()) <= 1.25 * len(f"&{name}")


def test_numbers_are_read_as_python_reads_them() -> None:
    for code in [*range(0x3100), *range(0xD7F0, 0xE010), *range(0xFDC0, 0xFE00), 0x1F600, 0x10FFFF]:
        for reference in (f"&#{code};", f"&#x{code:x};", f"&#X{code:X}"):
            assert read(reference) == html.unescape(reference), reference
    for reference in ("&#99999999999999999999;", "&#xffffffffffffffffff", "&#;", "&#x;", "&#xg"):
        assert read(reference) == html.unescape(reference)


@given(st.text("&#xX;0123456789abglmptquo ", max_size=12))
def test_any_text_after_an_ampersand_is_read_as_python_reads_it(tail: str) -> None:
    tail = tail.replace("&", "")
    assert read("&" + tail) == html.unescape("&" + tail)
