"""Positions of pieces read from SentencePiece's message, against a plain parser."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenize_kit.judge.candidate import piece_spans


def _varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _field(number, value):
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 5) + np.float32(value).tobytes()
    return _varint(number << 3 | 2) + _varint(len(value)) + value


PIECES = st.lists(
    st.tuples(st.binary(max_size=200), st.integers(0, 2**31), st.integers(0, 2**40)), max_size=8
)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), PIECES, st.booleans())
def test_pieces_are_read_whatever_fields_surround_them(text, pieces, late):
    message = b"" if late else _field(1, text)
    for piece, begin, end in pieces:
        inner = _field(1, piece) + _field(2, 7) + _field(3, piece)
        # As protobuf does, a field that is 0 may be left out.
        inner += (_field(4, begin) if begin else b"") + _field(5, end)
        message += _field(2, inner)
    message += _field(3, 0.5) + (_field(1, text) if late else b"")
    spans = piece_spans(np.frombuffer(message, np.uint8))
    assert spans.tolist() == [[begin, end] for _, begin, end in pieces]


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60), st.lists(st.sampled_from([b"\x12\x00", b"\xff"])).map(b"".join)
    )
)
def test_no_bytes_make_it_read_beyond_them(message):
    spans = piece_spans(np.frombuffer(message, np.uint8))
    assert spans.shape[1] == 2 and len(spans) <= len(message) // 2 + 1


@pytest.mark.parametrize("cut", [1, 3, 9], ids=lambda n: f"{n}-bytes-less")
def test_a_message_that_ends_early_is_reported(cut):
    message = _field(2, _field(1, b"abc") + _field(4, 300) + _field(5, 303))
    assert piece_spans(np.frombuffer(message[:-cut], np.uint8))[-1].tolist() == [-1, -1]
