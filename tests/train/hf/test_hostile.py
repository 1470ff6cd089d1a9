"""Whatever stands in a config.json, reading it ends in a model's configuration or in one line."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.roles import Roles
from llmcurate.base.settings import change as changed
from llmcurate.base.settings import from_dict, unflatten
from train.hf.export import config_json
from train.hf.families import FAMILIES
from train.hf.keys import Settings
from train.model.config import ModelConfig
from train.model.presets import preset

ENDS = Roles(begin=0, ends=(0,))


SEEN = {
    "llama": "llama3.1-8b", "mistral": "mistral-7b", "ministral": "mistral-7b",
    "qwen2": "qwen2.5-0.5b", "qwen3": "qwen2.5-0.5b", "olmo": "olmo-1b", "gpt2": "gpt2",
    "gptj": "gptj-6b", "gpt_neox": "pythia-160m", "bloom": "bloom-560m", "opt": "opt-125m",
    "bert": "bert-base", "roberta": "roberta-base", "albert": "albert-tiny",
    "modernbert": "modernbert-base", "mixtral": "mixtral-tiny", "qwen2_moe": "qwen2-moe",
    "qwen3_moe": "qwen2-moe", "mpt": "bloom-560m", "falcon": "gptj-6b",
    "t5": "t5-tiny", "mt5": "mt5-small", "bart": "bart-tiny", "electra": "electra-tiny",
    "xlm-roberta": "roberta-base", "phi3": "mistral-7b", "gemma": "llama3.1-8b",
    "gemma2": "llama3.1-8b", "gemma3_text": "llama3.1-8b",
    "olmo2": "llama-7b", "olmo3": "llama-7b", "smollm3": "llama3.1-8b",
    "deberta": "deberta-tiny", "deberta-v2": "deberta-v3-small",
}  # fmt: skip
LATENT = changed(
    preset("tiny"),
    {"attention": {"kind": "latent", "heads": 6, "query_rank": 24, "rank": 16, "rotary_dim": 8,
                   "plain_dim": 16, "value_dim": 16}},
    "model",
)  # fmt: skip
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70), st.sampled_from([10**400, -(10**400), 2**63]),
    st.floats(), st.text(max_size=4), st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(
        st.sampled_from(["rope_type", "type", "factor", "rope_theta", "short_factor",
                         "original_max_position_embeddings", "partial_rotary_factor"]),
        st.one_of(st.none(), st.integers(-2, 9), st.floats(), st.lists(st.floats(), max_size=3),
                  st.sampled_from(["linear", "yarn", "llama3", "longrope", "default", "dynamic"])),
        max_size=5,
    ),
)  # fmt: skip


@pytest.mark.lab
@pytest.mark.parametrize("name", FAMILIES)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_odd_values_end_in_a_configuration_or_in_one_line(name, data):
    family = FAMILIES[name]
    shape = LATENT if name.startswith("deepseek") else preset(SEEN[name])
    values = dict(config_json(dataclasses.replace(shape, layers=4), family, ENDS))
    keys = [*values, "rope_parameters", "layer_types", "quantization_config", "n_inner"]
    for key in data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=4)):
        values[key] = data.draw(ODD)
    values = json.loads(json.dumps(values))
    read = family.settings(values, "config.json")
    try:
        fields = family.read(read, None).ours | {"vocab": read.whole("vocab_size")}
        config = from_dict(ModelConfig, unflatten(fields), "config.json")
    except LlmcurateError as error:
        assert "\n" not in str(error)
        return
    assert isinstance(config.hidden, int)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"x": 10**400}, "x is 1000.* expected a number"),
        ({"x": "1"}, "x is '1': expected a number"),
        ({}, "x is missing"),
        ({"x": float("nan")}, "x is nan: expected a number"),
    ],
    ids=["huge", "text", "absent", "nan"],
)
def test_an_invalid_number_in_a_configuration_is_named(values, message):
    with pytest.raises(LlmcurateError, match=message) as caught:
        Settings(values, "config.json", {}).number("x")
    assert len(str(caught.value)) < 200


def test_yarn_with_a_factor_of_1_is_read():
    scaling = {"kind": "yarn", "factor": 1.0, "original_context": 64}
    model = changed(preset("llama-7b"), {"position.scaling": scaling}, "model")
    values = dict(config_json(model, FAMILIES["llama"], ENDS))
    read = FAMILIES["llama"].settings(values, "config.json")
    fields = FAMILIES["llama"].read(read, None).ours
    assert fields["position.scaling"]["factor"] == 1.0
