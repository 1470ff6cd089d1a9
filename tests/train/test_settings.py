"""Settings: every field has a sentence and limits; from JSON they are read by type."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from typing import Literal

import pytest
from pydantic import Field

import train.config
import train.model.config
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change, dataclass, from_dict, to_dict, unflatten
from train.config import TrainConfig
from train.model.encodings.alibi import Alibi
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
    settings = kind.__pydantic_fields__
    assert list(settings) == [field.name for field in dataclasses.fields(kind)]
    for name, setting in settings.items():
        if name == "kind" and setting.description is None:  # the name of a choice
            continue
        assert re.fullmatch(r"[A-Z`].*\.", setting.description), name
        if {int, float} & {setting.annotation, *typing.get_args(setting.annotation)}:
            limits = {type(limit).__name__ for limit in setting.metadata}
            assert limits & {"Ge", "Gt"}, name


@dataclass(frozen=True)
class Limited:
    share: float = Field(0.5, ge=0, le=1)
    rate: float = Field(1.0, gt=0)
    count: int | None = Field(None, ge=1)
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": 1.5}, "share is 1.5: give 1 or less"),
        ({"share": float("nan")}, "share is nan: give a finite number"),
        ({"rate": 0.0}, "rate is 0.0: give more than 0"),
        ({"rate": float("inf")}, "rate is inf: give a finite number"),
        ({"count": 0}, "count is 0: give 1 or more"),
        ({"kind": "c"}, "kind is 'c': choose one of a, b"),
    ],
)
def test_a_value_outside_the_limits_is_one_line_that_says_what_to_give(change, message):
    with pytest.raises(LlmcurateError) as caught:
        Limited(**change)
    assert str(caught.value) == message and caught.value.exit_code == 2


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
        ([], "give an object"),
        ({}, "count"),
        ({"count": True}, "count is True: give a whole number"),
        ({"count": 1.0}, "count is 1.0: give a whole number"),
        ({"count": 1, "flag": 1}, "flag is 1: give true or false"),
        ({"count": 1, "limit": "4"}, "limit is '4': give"),
        ({"count": 1, "sizes": [1, "2"]}, "sizes.1. is '2': give a whole number"),
        ({"count": 1, "sizes": 7}, "sizes is 7: give a list"),
        ({"count": 1, "part": {"share": "a"}}, "part.share is 'a': give a number"),
        ({"count": 1, "parts": [{}]}, "parts.0..share is missing"),
        ({"count": 1, "conut": 2}, "unknown setting 'conut'; did you mean count"),
    ],
)
def test_a_wrong_value_is_named(values, message):
    with pytest.raises(LlmcurateError, match=message):
        from_dict(Whole, values, "file")


def test_a_mapping_by_name_is_one_of_values_of_its_type():
    assert from_dict(TrainConfig, {"eval": {"news": "x"}}, "file").eval == {"news": "x"}
    for wrong, message in (
        ({"news": 3}, "eval.news is 3: give a string"),
        ("x", "eval is 'x': give an object"),
    ):
        with pytest.raises(LlmcurateError, match=message):
            from_dict(TrainConfig, {"eval": wrong}, "file")


def test_a_plain_value_sets_the_kind_and_dotted_names_set_its_fields():
    for values in ({"objective": "masked", "objective.rate": 0.3}, {"objective.rate": 0.3}):
        values["objective.kind"] = "masked"
        assert from_dict(TrainConfig, unflatten(values), "x").objective == Masked(rate=0.3)
    assert from_dict(TrainConfig, {"objective": "masked"}, "x").objective == Masked()


def test_a_nested_mapping_of_settings_changes_several_values_at_once():
    tiny = preset("tiny")
    changed = change(tiny, {"attention": {"heads": 8, "kv_heads": 4}, "layers": 2}, "model")
    assert (changed.attention.heads, changed.attention.kv_heads, changed.layers) == (8, 4, 2)
    assert changed.attention.head_dim == tiny.attention.head_dim


def test_another_kind_resets_its_settings_and_the_same_kind_keeps_them():
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
        ("norm", 3, "model: norm is 3: give an object of settings"),
        ("attention.kv_heads", 5, "attention.kv_heads is 5: it must divide attention.heads (6)"),
    ],
)
def test_an_unknown_setting_or_invalid_value_is_a_one_line_error(name, value, message):
    with pytest.raises(LlmcurateError, match=re.escape(message)):
        change(preset("tiny"), {name: value}, "model")
