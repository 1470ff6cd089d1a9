"""Settings: every field has a sentence and limits; from JSON they are read by type."""

from __future__ import annotations

import dataclasses
import json
import re
import typing

import pytest

import train.config
import train.model.config
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import Setting, change, check, from_dict, settings_of, to_dict, unflat
from train.config import TrainConfig
from train.model.position_settings import Alibi
from train.model.presets import preset
from train.objective_settings import Masked

KINDS = [
    kind
    for module in (train.config, train.model.config)
    for kind in vars(module).values()
    if dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_setting_is_described_in_a_sentence_and_every_number_has_a_limit(kind):
    hints = typing.get_type_hints(kind)
    settings = settings_of(kind)
    assert list(settings) == [field.name for field in dataclasses.fields(kind)]
    for name, setting in settings.items():
        assert re.fullmatch(r"[A-Z`].*\.", setting.description), name
        if {int, float} & {hints[name], *typing.get_args(hints[name])} and "tuple" not in str(
            hints[name]
        ):
            assert setting.ge is not None or setting.gt is not None, name


@dataclasses.dataclass(frozen=True)
class Limited:
    share: typing.Annotated[float, Setting("A share.", ge=0, le=1)] = 0.5
    rate: typing.Annotated[float, Setting("A rate.", gt=0)] = 1.0
    count: typing.Annotated[int | None, Setting("A number.", ge=1)] = None
    kind: typing.Annotated[str, Setting("A kind.", choices=("a", "b"))] = "a"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": 1.5}, "share is 1.5: it lies between 0 and 1"),
        ({"share": float("nan")}, "share is nan: it lies between 0 and 1"),
        ({"rate": 0.0}, "rate is 0.0: it must be over 0 and finite"),
        ({"rate": float("inf")}, "rate is inf: it must be over 0 and finite"),
        ({"count": 0}, "count is 0: give 1 or more"),
        ({"kind": "c"}, "kind is 'c': choose one of a, b"),
    ],
)
def test_a_value_outside_the_limits_is_one_line_that_says_what_to_give(change, message):
    check(Limited())
    with pytest.raises(LlmcurateError) as caught:
        check(Limited(**change))
    assert str(caught.value) == message and caught.value.exit_code == 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    share: float
    name: str = "x"


@dataclasses.dataclass(frozen=True, kw_only=True)
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
    with pytest.raises(LlmcurateError, match=message):
        from_dict(Whole, values, "file")


def test_a_mapping_by_name_is_one_of_values_of_its_type():
    assert from_dict(TrainConfig, {"eval": {"news": "x"}}, "file").eval == {"news": "x"}
    for wrong, message in (
        ({"news": 3}, "eval is 3, expected str"),
        ("x", "eval is 'x', expected"),
    ):
        with pytest.raises(LlmcurateError, match=message):
            from_dict(TrainConfig, {"eval": wrong}, "file")


def test_a_word_is_the_kind_of_settings_and_names_below_it_are_theirs():
    for values in ({"objective": "masked", "objective.rate": 0.3}, {"objective.rate": 0.3}):
        values["objective.kind"] = "masked"
        assert from_dict(TrainConfig, unflat(values), "x").objective == Masked(rate=0.3)
    assert from_dict(TrainConfig, {"objective": "masked"}, "x").objective == Masked()


def test_other_values_at_dotted_names_count_together():
    tiny = preset("tiny")
    changed = change(tiny, {"attention": {"heads": 8, "kv_heads": 4}, "layers": 2}, "model")
    assert (changed.attention.heads, changed.attention.kv_heads, changed.layers) == (8, 4, 2)
    assert changed.attention.head_dim == tiny.attention.head_dim


def test_another_kind_sets_back_what_is_not_its_own_and_the_same_kind_keeps_it():
    neox = preset("pythia-160m")
    assert change(neox, {"position": "alibi"}, "model").position == Alibi()
    assert change(neox, {"position.kind": "rope"}, "model").position.dim == 16
    yarn = {"position.scaling": {"kind": "yarn", "original_context": 64, "factor": 2}}
    assert change(neox, yarn, "model").position.scaling.factor == 2.0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("window", 3, "model: unknown setting 'window'; did you mean attention.window?"),
        ("atention.window", 3, "did you mean attention.window?"),
        ("attention.windw", 3, "did you mean attention.window?"),
        ("position", "spiral", "position.kind is 'spiral': choose one of rope, learned"),
        ("layers.x", 3, "layers has no settings below it"),
        ("norm", 3, "model: norm: expected an object of settings"),
        ("attention.kv_heads", 5, "attention.kv_heads is 5: it must divide attention.heads (6)"),
    ],
)
def test_a_name_or_value_that_is_none_is_one_line(name, value, message):
    with pytest.raises(LlmcurateError, match=re.escape(message)):
        change(preset("tiny"), {name: value}, "model")
