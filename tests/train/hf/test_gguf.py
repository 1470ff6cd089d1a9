"""`llmcurate export --format gguf`: llama.cpp computes the model, from its own tokenizer."""

from __future__ import annotations

import importlib
import json
import weakref
from itertools import islice

import numpy as np
import pytest
import torch

from curate.cli.app import invoke
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.roles import Roles
from llmcurate.base.settings import change as changed
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.train.loop.small_runs import build, trained
from tokenize_kit.learn.training import train_tokenizer
from train.generate import GREEDY, complete, load
from train.model.attention_settings import Grouped
from train.model.config import Head, ModelConfig
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Rope
from train.model.positions import rope_frequencies
from train.runs.tensors import Stored

gguf = pytest.importorskip("gguf")

from tokenize_kit.change.gguf_model import add_tokenizer  # noqa: E402
from train.hf.gguf import architecture_of, export_gguf  # noqa: E402

LLAMA = ModelConfig(
    vocab=300,
    layers=3,
    hidden=48,
    context=64,
    position=Rope(theta=5000.0),
    attention=Grouped(heads=4, kv_heads=2, head_dim=16),
    feed_forward=Dense(width=80),
    head=Head(tied=False),
)


def llama(change: dict) -> ModelConfig:
    return changed(LLAMA, change, "model")


MIXTRAL = llama({"feed_forward": {"kind": "experts", "count": 4, "top_k": 2, "width": 40}})
QWEN2 = llama({"attention": {"bias": "qkv", "head_dim": 12}, "head.tied": True, "norm.eps": 1e-6})
GPT2 = llama(
    {
        "attention": {"kv_heads": 4, "head_dim": 12, "bias": "all"},
        "norm": {"kind": "layer", "eps": 1e-4},
        "feed_forward": {"activation": "gelu_tanh", "bias": True},
        "head.tied": True,
        "position": "learned",
    }
)
SCALING = {"factor": 4.0, "original_context": 16}


def scaled(kind: str, **more) -> ModelConfig:
    return llama({"position.scaling": {"kind": kind, **more}})


PLAIN = {
    "llama": LLAMA,
    "llama, tied": llama({"head.tied": True, "attention.kv_heads": 1}),
    "qwen2": QWEN2,
    "qwen3": llama({"attention.qk_norm": True, "attention.head_dim": 128}),
    # What that reader takes for granted: 1024 positions, 4 x hidden.
    "gpt2": changed(GPT2, {"feed_forward.width": 192, "context": 1024}, "model"),
}
OTHERS = {
    "mixtral": MIXTRAL,
    "biases": llama({"attention.bias": "all", "feed_forward.bias": True}),
    "odd heads": llama({"attention.heads": 7, "attention.kv_heads": 7}),
    "linear": scaled("linear", factor=4.0),
    "ntk": scaled("ntk", factor=4.0),
    "yarn": scaled("yarn", **SCALING),
    "yarn, a ramp of its own": scaled("yarn", beta_fast=0.5, beta_slow=0.05, **SCALING),
    "yarn, a factor of its own": scaled("yarn", attention_factor=1.3, **SCALING),
    "yarn of qwen2": changed(
        PLAIN["qwen2"], {"position.scaling": {"kind": "yarn", **SCALING}}, "model"
    ),
    "llama3": scaled("llama3", low=1.0, high=3.0, **SCALING),
    "longrope": scaled("longrope", short=(1.0,) * 8, long=(1.5,) * 8, original_context=16),
    "gpt2 of another width": GPT2,
}
# The largest difference of logits, as a share of the largest logit.
CLOSE = {"float32": 2e-5, "float16": 0.02, "bfloat16": 0.12, "q8_0": 0.08}


@pytest.fixture(scope="session")
def llama_tokenizer(tmp_path_factory):
    """A tokenizer.json with llama3's pattern and fewer tokens than the models have."""
    out = tmp_path_factory.mktemp("llama3")
    train_tokenizer(["the cat sat on the mat, 12 dogs ran " * 40], out, vocab=280, pattern="llama3")
    return out / "tokenizer.json"


@pytest.fixture
def run_of(tmp_path, llama_tokenizer):
    return lambda config: trained(tmp_path / "run", build(config), llama_tokenizer)


def values_in(file) -> dict:
    return {name: field.contents() for name, field in gguf.GGUFReader(file).fields.items()}


def tensors_in(file) -> dict[str, np.ndarray]:
    tensors = gguf.GGUFReader(file).tensors
    return {each.name: gguf.dequantize(each.data, each.tensor_type) for each in tensors}


def difference(theirs: torch.Tensor, run, ids: list[int]) -> float:
    ours = load(run)[0](torch.tensor([ids]))[0].detach()
    return float((theirs - ours).abs().max() / ours.abs().max())


def ids_for(config) -> list[int]:
    return torch.randint(0, 280, (40,), generator=torch.Generator().manual_seed(3)).tolist()


def in_transformers(file, ids: list[int]) -> torch.Tensor:
    """The logits of the model that transformers' own reader of GGUF files makes of a file."""
    transformers = pytest.importorskip("transformers")
    reader = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    config = transformers.AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    with torch.device("meta"):
        empty = transformers.AutoModelForCausalLM.from_config(config)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    weights = reader.load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=empty)
    wrong = model.load_state_dict(weights["tensors"], strict=False)
    assert wrong.unexpected_keys == [] and set(wrong.missing_keys) <= {"lm_head.weight"}
    model.tie_weights()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def in_llama_cpp(file, **settings):
    llama_cpp = pytest.importorskip("llama_cpp")
    single = {"n_threads": 1, "type_k": 0, "type_v": 0}  # keys and values in float32
    return llama_cpp.Llama(str(file), n_ctx=64, verbose=False, **single, **settings)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("name", PLAIN)
def test_transformers_reads_the_model_from_the_file(name, dtype, run_of, tmp_path):
    config = PLAIN[name]
    run, file = run_of(config), tmp_path / "model.gguf"
    summary = export_gguf(run, file, add_tokenizer, dtype=dtype)
    assert summary.family == name.partition(",")[0]
    assert summary.bytes == file.stat().st_size
    ids = ids_for(config)
    assert difference(in_transformers(file, ids), run, ids) < CLOSE[dtype]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.lab) if n == "mixtral" else n for n in PLAIN | OTHERS],
)
def test_llama_cpp_computes_the_same_logits(name, run_of, tmp_path):
    config = (PLAIN | OTHERS)[name]
    run, file = run_of(config), tmp_path / "model.gguf"
    export_gguf(run, file, add_tokenizer)
    ids = ids_for(config)
    model = in_llama_cpp(file, logits_all=True)
    model.eval(ids)
    # ggml looks up GELU in a table of float16.
    limit = 5e-3 if "gpt2" in name else 2e-5
    assert difference(torch.tensor(np.array(model.scores[: len(ids)])), run, ids) < limit


def test_llama_cpp_continues_texts_as_we_do(run_of, llama_tokenizer, tmp_path):
    vocab = load_tokenizer(llama_tokenizer).get_vocab_size()
    run, file = run_of(llama({"head.tied": True, "vocab": vocab})), tmp_path / "model.gguf"
    export_gguf(run, file, add_tokenizer)
    prompts = [f"the {n} dog" + "s ran, " * (n % 3) + "é猫🙂 "[: n % 5] for n in range(20)]
    trained_model, tokens = load(run)
    ours = complete(trained_model, tokens, prompts, max_tokens=12, sampling=GREEDY, seed=0)
    model = in_llama_cpp(file)
    for prompt, completion in zip(prompts, ours, strict=True):
        start = model.tokenize(prompt.encode(), add_bos=True)
        ids = list(islice(model.generate(start, temp=0.0, repeat_penalty=1.0), 12))
        end = ids.index(model.token_eos()) if model.token_eos() in ids else 12
        assert tokens.decode(ids[:end]) == completion.text


@pytest.mark.lab
def test_all_experts_are_in_one_tensor_and_the_router_is_exact(run_of, tmp_path):
    run, file = run_of(MIXTRAL), tmp_path / "model.gguf"
    export_gguf(run, file, add_tokenizer, dtype="bfloat16")
    theirs, ours = tensors_in(file), dict(load(run)[0].state_dict())
    kinds = {each.name: each.tensor_type.name for each in gguf.GGUFReader(file).tensors}
    for name, own in (("gate", "gate"), ("up", "up"), ("down", "down")):
        expected = ours[f"stack.blocks.1.feed_forward.{own}"]
        stacked = torch.tensor(theirs[f"blk.1.ffn_{name}_exps.weight"])
        assert torch.equal(stacked, expected.bfloat16().float())
    router = torch.tensor(theirs["blk.1.ffn_gate_inp.weight"])
    assert torch.equal(router, ours["stack.blocks.1.feed_forward.router.weight"])
    assert kinds["blk.1.ffn_gate_inp.weight"] == kinds["output_norm.weight"] == "F32"
    assert values_in(file)["llama.expert_used_count"] == 2


def test_frequencies_are_divided_as_transformers_scales_them(run_of, tmp_path):
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    config, file = OTHERS["llama3"], tmp_path / "model.gguf"
    export_gguf(run_of(config), file, add_tokenizer)
    from transformers import LlamaConfig

    scaling = {"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 16}
    scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 3.0, "rope_theta": 5000.0}
    theirs = LlamaConfig(
        hidden_size=48, num_attention_heads=4, head_dim=16, rope_parameters=scaling
    )
    expected, _ = rope.ROPE_INIT_FUNCTIONS["llama3"](theirs, "cpu")
    usual = 5000.0 ** (-torch.arange(0, 16, 2).float() / 16)
    divided = usual / torch.tensor(tensors_in(file)["rope_freqs.weight"])
    assert torch.allclose(divided, expected, rtol=1e-6)
    assert torch.allclose(divided, rope_frequencies(config)[0], rtol=1e-6)


def test_rows_that_blocks_do_not_divide_are_float16(run_of, tmp_path):
    narrow = llama({"hidden": 64})  # rows of 64 and 80 numbers
    file = tmp_path / "model.gguf"
    export_gguf(run_of(narrow), file, add_tokenizer, dtype="q8_0")
    kinds = {each.name: each.tensor_type.name for each in gguf.GGUFReader(file).tensors}
    assert kinds["blk.0.ffn_up.weight"] == "Q8_0"
    assert kinds["blk.0.ffn_down.weight"] == "F16"
    assert values_in(file)["general.file_type"] == gguf.LlamaFileType.MOSTLY_Q8_0


def test_the_tokenizer_is_filled_up_and_begins_texts_as_in_training(run_of, tmp_path):
    run, file = run_of(LLAMA), tmp_path / "model.gguf"
    export_gguf(run, file, add_tokenizer)
    values = values_in(file)
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    assert len(tokens) == len(types) == LLAMA.vocab
    assert tokens[-1] == "[PAD299]" and types[-1] == gguf.TokenType.UNUSED
    end = tokens.index("<|endoftext|>")
    assert values["tokenizer.ggml.eos_token_id"] == values["tokenizer.ggml.bos_token_id"] == end
    assert values["tokenizer.ggml.add_bos_token"] is True


@pytest.mark.parametrize(("before", "added"), [((), False), ((0,), True)])
def test_the_recorded_roles_decide_what_begins_a_text(before, added, run_of, tmp_path):
    run, file = run_of(LLAMA), tmp_path / "model.gguf"
    Roles(ends=(0,), before=before).write(run)
    export_gguf(run, file, add_tokenizer)
    assert values_in(file)["tokenizer.ggml.add_bos_token"] is added


REFUSED = {
    "activation": (LLAMA, {"feed_forward.activation": "geglu"}, "activation geglu"),
    "window": (LLAMA, {"attention.window": 7}, "attention.window 7 "),
    "family": (LLAMA, {"norm.kind": "layer_plain", "attention.head_dim": 12}, "norm.kind layer_pl"),
    "scaling of qwen3": (
        PLAIN["qwen3"],
        {"position.scaling": {"kind": "llama3", **SCALING}},
        "nearest is llama, but for attention.qk_norm True",
    ),
    "gpt2's activation": (GPT2, {"feed_forward.activation": "relu"}, "expected gelu_tanh"),
}


@pytest.mark.parametrize(("config", "change", "message"), REFUSED.values(), ids=REFUSED)
def test_what_llama_cpp_does_not_compute_is_refused_by_the_settings(config, change, message):
    with pytest.raises(LlmcurateError, match="no architecture of llama") as caught:
        architecture_of(changed(config, change, "model"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_that_llama_cpp_lacks_leaves_no_file(tmp_path, small_tokenizer, capsys):
    run = trained(tmp_path / "run", build(LLAMA), small_tokenizer)
    out = tmp_path / "out"
    assert invoke(["export", str(run), "-o", str(out), "--format", "gguf"]) == 1
    error = capsys.readouterr().err
    assert "train a tokenizer with --pattern llama3" in error
    assert error.count("\n") == 1
    assert list(out.iterdir()) == []


def test_a_smaller_model_than_its_tokenizer_is_refused(run_of, tmp_path):
    run = run_of(llama({"vocab": 270}))
    with pytest.raises(LlmcurateError, match="tokens and the model only 270"):
        export_gguf(run, tmp_path / "model.gguf", add_tokenizer)
    assert not (tmp_path / "model.gguf").exists()


def test_a_tensor_at_a_time_is_in_memory(run_of, tmp_path, monkeypatch):
    run, alive, most, own = run_of(LLAMA), [], [], Stored.__getitem__

    def read(stored, name):
        tensor = own(stored, name)
        alive.append(weakref.ref(tensor))
        most.append(sum(reference() is not None for reference in alive))
        return tensor

    monkeypatch.setattr(Stored, "__getitem__", read)
    export_gguf(run, tmp_path / "model.gguf", add_tokenizer)
    assert len(most) > 20 and max(most) == 1


def test_the_command_writes_a_file_or_a_folder_and_never_over_one(run_of, tmp_path, capsys):
    run, file, folder = str(run_of(LLAMA)), tmp_path / "small.gguf", tmp_path / "out"
    words = ["export", run, "--format", "gguf", "-o"]
    assert invoke([*words, str(file), "--dry-run"]) == 0
    assert f"as llama to {file}" in capsys.readouterr().out
    assert not file.exists()
    assert invoke([*words, str(file), "--dtype", "q8_0", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["family"], answer["dtype"]) == ("llama", "q8_0")
    assert answer["bytes"] == file.stat().st_size
    assert invoke([*words, str(folder)]) == 0
    assert "llama, " in capsys.readouterr().out
    assert [path.name for path in folder.iterdir()] == ["model.gguf"]
    assert invoke([*words, str(file)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert invoke([*words, str(file), "--restart"]) == 0
    assert (tmp_path / "small.gguf.1").stat().st_size < file.stat().st_size
