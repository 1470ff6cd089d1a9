"""Exports in parts and in bfloat16; what cannot be exported or imported says why in one line."""

from __future__ import annotations

import json
import shutil
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change as changed
from tests.train.loop.small_runs import build, seal_again, trained
from train.generate import load as load_run
from train.hf.export import export
from train.hf.families import FAMILIES, family_of, obstacles
from train.hf.family import our_shapes
from train.hf.load import import_model, inspect_folder, load
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Dense
from train.model.position_settings import RopeScaling
from train.runs.tensors import Stored

CONFIG = ModelConfig(
    vocab=300,
    layers=2,
    hidden=32,
    context=32,
    attention=Grouped(heads=4, kv_heads=2, head_dim=8),
    feed_forward=Dense(width=48),
)
SINKS = {"attention.window": 8, "attention.sinks": 2}


def config_of(change: dict) -> ModelConfig:
    return changed(CONFIG, change, "model")


REFUSED: dict[str, tuple[dict, str]] = {
    "attention.sinks": (SINKS, r"nearest is mistral, but for attention.sinks 2 \(expected 0\)"),
    "post": ({"norm.place": "post"}, r"but for norm.place post \(expected pre\)"),
    "sinusoidal": ({"position": "sinusoidal"}, "position.kind sinusoidal"),
    "t5": ({"position": "t5"}, "position.kind t5"),
    "head bias": ({"head.bias": True}, "llama, but for head.bias True"),
    "two": (
        {"embedding.norm": True, "attention.sinks": 1, "attention.window": 4},
        r"attention.sinks 1 .*, embedding.norm",
    ),
    "bloom's width": (
        {
            "position": "alibi", "embedding.norm": True, "norm.kind": "layer",
            "attention": {"bias": "all", "kv_heads": 4},
            "feed_forward": {"bias": True, "activation": "gelu_tanh"},
        },
        r"bloom, but for feed_forward.width 48 \(expected 128\)",
    ),
    "olmo's eps": (
        {"norm.kind": "layer_plain", "norm.eps": 1e-6},
        "llama, but for norm.kind layer_plain",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_what_no_class_computes_is_refused_by_the_names_of_the_settings(change, message):
    with pytest.raises(LlmcurateError, match=message) as caught:
        family_of(config_of(change))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_a_hard_coded_eps_of_a_class_prevents_the_export():
    assert obstacles(FAMILIES["olmo"], config_of({"norm.kind": "layer_plain"})) == {}
    assert obstacles(
        FAMILIES["olmo"], config_of({"norm": {"kind": "layer_plain", "eps": 1e-6}})
    ) == {"norm.eps": 1e-5}


@pytest.fixture
def run(tmp_path, small_tokenizer):
    return trained(tmp_path / "run", build(CONFIG), small_tokenizer)


@pytest.fixture
def hf(run, tmp_path):
    export(run, tmp_path / "hf")
    return tmp_path / "hf"


def test_large_models_are_cut_into_files_with_an_index(run, tmp_path):
    transformers = pytest.importorskip("transformers")
    whole = export(run, tmp_path / "whole")
    parts = export(run, tmp_path / "parts", shard_bytes=30_000)
    assert whole.files == ["model.safetensors"]
    assert len(parts.files) == 5
    assert parts.files[0] == "model-00001-of-00004.safetensors"
    assert all((tmp_path / "parts" / name).stat().st_size < 42_000 for name in parts.files)
    single, other = (
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict()
        for name in ("whole", "parts")
    )
    assert all(torch.equal(single[name], other[name]) for name in single)
    import_model(tmp_path / "parts", tmp_path / "back")
    weights = load(tmp_path / "back")[1]
    first = load(run)[1]
    assert all(torch.equal(weights[name], first[name]) for name in first)


def test_a_tensor_at_a_time_is_in_memory(run, tmp_path, monkeypatch):
    alive: list[weakref.ref] = []
    most, own = [], Stored.__getitem__

    def read(stored, name):
        tensor = own(stored, name)
        alive.append(weakref.ref(tensor))
        most.append(sum(reference() is not None for reference in alive))
        return tensor

    monkeypatch.setattr(Stored, "__getitem__", read)
    export(run, tmp_path / "out")
    assert len(most) > 10 and max(most) == 1


def test_a_bfloat16_export_is_the_rounded_model_and_opens_in_bfloat16(run, tmp_path):
    transformers = pytest.importorskip("transformers")
    export(run, tmp_path / "half", dtype="bfloat16")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "half")
    assert model.dtype == torch.bfloat16
    for name, weight in load(tmp_path / "half")[1].items():
        assert torch.equal(weight, load(run)[1][name].bfloat16().float()), name


def test_the_same_run_gives_the_same_files(run, tmp_path):
    for name in ("one", "two"):
        export(run, tmp_path / name)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_an_export_is_a_new_folder_whole_or_not_there(run, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    with pytest.raises(LlmcurateError, match="exists already"):
        export(run, tmp_path / "full")
    with pytest.raises(LlmcurateError, match="choose one of float32, float16, bfloat16"):
        export(run, tmp_path / "new", dtype="int8")
    with pytest.raises(LlmcurateError, match="no finished checkpoint"):
        export(tmp_path, tmp_path / "new")

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("train.hf.export._card", stop)
        export(run, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    export(run, tmp_path / "new")
    assert (tmp_path / "new" / "config.json").is_file()


def test_the_average_is_exported_where_there_is_one(run, tmp_path):
    step = next((run / "checkpoints").iterdir())
    weights = load_file(step / "model.safetensors")
    average = {name: value / 2 for name, value in weights.items()}
    save_file(average, step / "average.safetensors")
    seal_again(step)
    export(run, tmp_path / "hf")
    exported = load(tmp_path / "hf")[1]
    assert all(torch.equal(exported[name], average[name]) for name in average)


def test_a_checkpoint_that_does_not_fit_its_config_is_refused(run, tmp_path):
    path = next((run / "checkpoints").iterdir()) / "config.json"
    values = json.loads(path.read_bytes())
    values["model"]["layers"] = 10**12
    path.write_text(json.dumps(values))
    seal_again(path.parent)
    with pytest.raises(LlmcurateError, match=r"layers is 1000000000000: give 10000 or less"):
        export(run, tmp_path / "hf")


def change_config(**change):
    def apply(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | change))

    return apply


def change_weights(change):
    def apply(folder):
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return apply


def write(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def point_outside(folder):
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = {"weight_map": {"a": "../hf/model-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def add(name, shape):
    return change_weights(lambda weights: weights.update({name: torch.ones(shape)}))


HOSTILE = {
    "no config": (lambda f: (f / "config.json").unlink(), "no config.json"),
    "config is a list": (write("config.json", b"[]"), "expected a JSON object"),
    "config is cut": (write("config.json", b'{"model_type": "lla'), "cannot be read"),
    "config is deep": (write("config.json", b"[" * 100_000), "cannot be read"),
    "config is not text": (write("config.json", b"\xff\x00"), "cannot be read"),
    "unknown class": (change_config(model_type="mamba"), "'mamba': expected one of llama"),
    "class is a list": (change_config(model_type=["llama"]), "model_type is"),
    "a size is text": (change_config(hidden_size="32"), "hidden_size is '32': expected a whole"),
    "a size is true": (change_config(num_hidden_layers=True), "expected a whole number"),
    "a size is missing": (change_config(hidden_size=None), "hidden_size is missing"),
    "no heads": (change_config(num_attention_heads=0, head_dim=None), "give 1 or more"),
    "many layers": (change_config(num_hidden_layers=10**12), "config.json: layers is"),
    "many tokens": (change_config(vocab_size=10**15), "config.json describes"),
    "other width": (change_config(intermediate_size=40), r"gate_proj.weight is float32 \[48, 32\]"),
    "other activation": (change_config(hidden_act="tanh"), "'tanh': expected one of silu"),
    "quantised": (change_config(quantization_config={"bits": 4}), "quantization_config"),
    "dynamic rotation": (
        change_config(rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
        "rope_type is 'dynamic'",
    ),
    "rotation as text": (change_config(rope_scaling="yarn"), "expected an object"),
    "rotation below 1": (
        change_config(rope_scaling={"rope_type": "linear", "factor": 0.5}),
        "factor is 0.5: give 1 or more",
    ),
    "a factor in the short context": (
        change_config(
            rope_scaling={
                "rope_type": "longrope",
                "original_max_position_embeddings": 4096,
                "short_factor": [1.0] * 4,
                "long_factor": [2.0] * 4,
                "attention_factor": 1.3,
            }
        ),
        "attention_factor is 1.3: it must be 1 up to the original context",
    ),
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(),
        "no model.safetensors or pytorch_model.bin",
    ),
    "weights cut": (write("model.safetensors", b"\x08"), "cannot be read"),
    "weights elsewhere": (point_outside, "is not a file in the same folder"),
    "a weight less": (
        change_weights(lambda w: w.update(x=w.pop("model.norm.weight"))),
        "model.norm.weight missing from the weights",
    ),
    "whole numbers": (
        change_weights(lambda w: w.update({"model.norm.weight": torch.ones(32).int()})),
        "model.norm.weight is int32",
    ),
    "another head": (add("lm_head.weight", (300, 32)), "lm_head.weight differs from the embedding"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer.json"),
    "tokenizer cut": (write("tokenizer.json", b"{"), "not a tokenizer.json"),
}


@pytest.mark.parametrize(("damage", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_folder_that_does_not_fit_is_refused_in_one_line(damage, message, hf, tmp_path):
    damage(hf)
    with pytest.raises(LlmcurateError, match=message) as caught:
        import_model(hf, tmp_path / "out")
    assert "\n" not in str(caught.value).strip()
    assert not (tmp_path / "out" / "checkpoints").exists()


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path, small_tokenizer):
    run = trained(tmp_path / "run", build(config_of({"vocab": 100})), small_tokenizer)
    export(run, tmp_path / "hf")
    with pytest.raises(LlmcurateError, match="the model 100 tokens"):
        import_model(tmp_path / "hf", tmp_path / "out")


def test_a_folder_with_a_model_in_it_is_not_written_over(hf, run):
    with pytest.raises(LlmcurateError, match="holds a model already"):
        import_model(hf, run)


@pytest.mark.parametrize("prefix", ["model.", ""], ids=["with the head", "without"])
def test_files_of_older_versions_open(prefix, hf, tmp_path):
    """Their buffers, a head beside the embedding it is tied to, and names without the prefix."""

    def old(weights):
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
        for name in [name for name in weights if name.startswith("model.")]:
            weights[prefix + name.removeprefix("model.")] = weights.pop(name)

    before = load(hf)[1]
    change_weights(old)(hf)
    after = load(hf)[1]
    assert before.keys() == after.keys() == our_shapes(CONFIG).keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_keys_of_transformers_5_are_read(hf):
    change_config(
        rope_theta=None,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 77.0},
    )(hf)
    config = inspect_folder(hf).config
    assert config.position.theta == 77.0
    assert config.position.scaling == RopeScaling(kind="linear", factor=2.0)


def test_longrope_that_changes_with_the_text_is_imported_for_one_length(hf, tmp_path):
    divisors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    change_config(
        rope_scaling={
            "rope_type": "longrope",
            "original_max_position_embeddings": 16,
            **divisors,
        }
    )(hf)
    with pytest.raises(LlmcurateError, match="import with --context 16"):
        inspect_folder(hf)
    config = inspect_folder(hf, context=16).config
    assert (config.context, config.position.scaling.short) == (16, (1.0,) * 4)


def test_an_imported_model_generates(hf, tmp_path):
    import_model(hf, tmp_path / "out")
    shutil.rmtree(hf)
    model, _ = load_run(tmp_path / "out")
    assert model.config == CONFIG
