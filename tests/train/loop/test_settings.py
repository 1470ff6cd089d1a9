"""Settings read from JSON: the right types, or one line that names the key."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from train.errors import TrainError
from train.settings import from_dict, to_dict


@dataclass(frozen=True, kw_only=True)
class Part:
    share: float
    name: str = "x"


@dataclass(frozen=True, kw_only=True)
class Whole:
    count: int
    flag: bool = False
    limit: int | None = None
    sizes: tuple[int, ...] = ()
    part: Part | None = None
    parts: tuple[Part, ...] = ()


def test_settings_survive_json():
    whole = Whole(
        count=3, limit=4, sizes=(1, 2), part=Part(share=0.5), parts=(Part(share=1, name="y"),)
    )
    assert from_dict(Whole, json.loads(json.dumps(to_dict(whole))), "file") == whole
    assert from_dict(Whole, to_dict(Whole(count=1)), "file") == Whole(count=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "expected an object"),
        ({}, "count"),
        ({"count": True}, "count is True, expected int"),
        ({"count": 1.0}, "count is 1.0, expected int"),
        ({"count": 1, "flag": 1}, "flag is 1, expected bool"),
        ({"count": 1, "limit": "4"}, "limit is '4', expected"),
        ({"count": 1, "sizes": [1, "2"]}, "sizes is '2', expected int"),
        ({"count": 1, "sizes": 7}, "sizes is 7, expected"),
        ({"count": 1, "part": {"share": "a"}}, "part: share is 'a', expected float"),
        ({"count": 1, "parts": [{}]}, "parts: .*share"),
        ({"count": 1, "conut": 2}, "unknown setting 'conut'; did you mean count"),
    ],
)
def test_a_wrong_value_is_named(values, message):
    with pytest.raises(TrainError, match=message):
        from_dict(Whole, values, "file")
