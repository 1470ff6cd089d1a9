"""Messages between processes read back as they were written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from llmcurate.base.messages import Message, Task, decode, encode


@dataclass(frozen=True)
class Place:
    path: Path
    size: int


@dataclass(frozen=True)
class Sample(Task):
    places: tuple[Place, ...]
    shares: dict[int, float]
    name: str | None = None


PATHS = st.text(st.characters(codec="utf-8", exclude_characters="\0")).map(Path)
PLACES = st.builds(Place, PATHS, st.integers(0, 2**64))


@given(
    st.builds(
        Sample,
        part=st.integers(),
        places=st.lists(PLACES).map(tuple),
        shares=st.dictionaries(st.integers(), st.floats(allow_nan=False)),
        name=st.none() | st.text(),
    )
)
def test_a_message_is_one_line_and_comes_back(message: Sample) -> None:
    line = message.to_json()
    assert b"\n" not in line and Sample.from_json(line) == message
    assert decode(Sample, encode(message)) == message


def test_nan_and_infinity_survive_messages() -> None:
    (share,) = Sample.from_json(Sample(0, (), {1: math.nan}).to_json()).shares.values()
    assert math.isnan(share)


def test_a_name_that_is_no_utf8_comes_back() -> None:
    message = Sample(0, (Place(Path("/x\udc80"), 1),), {})
    assert Sample.from_json(message.to_json()) == message


@pytest.mark.parametrize("line", [b'{"part": 1}', b'{"part": 1, "places": 7, "shares": {}}', b"["])
def test_a_line_that_is_no_such_message_is_refused(line: bytes) -> None:
    with pytest.raises(ValidationError):
        Sample.from_json(line)


def test_values_that_are_no_messages_are_plain_json() -> None:
    assert decode(dict, encode({"a": [1]})) == {"a": [1]} and encode(None) == b"null"
    assert Message().to_json() == b"{}"
