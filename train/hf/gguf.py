"""Write a trained model as one GGUF file, which llama.cpp and the programs built on it read.

The keys, and the types of tensors, are those of llama.cpp's convert_hf_to_gguf.py. The source for
what llama.cpp computes for each architecture is src/models of ggml-org/llama.cpp, read in November
2026.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from llmcurate.base.disk.files import replacing
from llmcurate.base.errors import UsageError
from train.hf import gpt, llama
from train.hf.export import Exported, chosen, exported
from train.hf.families import FAMILIES, family_of
from train.hf.family import UNCHANGED, Family, Weight, our_shapes, reordered, rows_in_pairs
from train.hf.rope import rope_keys
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Experts
from train.model.position_settings import Rope
from train.model.positions import rope_frequencies, temperature
from train.runs.checkpoint import tokenizer_of, weights_of

# GGML's names of the types of matrices, by our names.
DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0"}
# Adds the keys that describe a tokenizer to a file, given the path of tokenizer.json and the size
# of the model's vocabulary.
Finish = Callable[[gguf.GGUFWriter, Path, int], None]

# llama.cpp's architectures by transformers' family.
_ARCHITECTURES = {
    llama.LLAMA.name: "llama",
    llama.MISTRAL.name: "llama",
    llama.MIXTRAL.name: "llama",
    llama.QWEN2.name: "qwen2",
    llama.QWEN3.name: "qwen3",
    gpt.GPT2.name: "gpt2",
}
_FAMILIES = tuple(replace(FAMILIES[name], tasks={}) for name in _ARCHITECTURES)


def architecture_of(config: ModelConfig) -> Family:
    """Return the family of transformers whose weights fit the model ``config``. The family's name
    is replaced by that of llama.cpp's architecture. Raises an ``LlmcurateError`` if no architecture
    fits; the message names the settings that the nearest architecture does not support."""
    kind, scaled = "architecture of llama.cpp", _by_frequency(config)
    fit = [each for each in _FAMILIES if not scaled or _ARCHITECTURES[each.name] == "llama"]
    family, own = family_of(config, fit, kind), config.attention
    expected: dict[str, tuple[object, object]] = {
        "feed_forward.activation": (
            config.feed_forward.activation,
            "gelu_tanh" if family.name == gpt.GPT2.name else "swiglu",
        ),
        "attention.window": (next(filter(None, config.windows), None), None),
    }
    if family.name == llama.QWEN2.name:
        expected["attention.head_dim"] = own.head_dim, config.hidden / own.heads
    for name, (value, only) in expected.items():
        if value != only:
            raise UsageError(
                f"no {kind} is known for this model: nearest is {_ARCHITECTURES[family.name]}, but"
                f" for {name} {value} (expected {only})"
            )
    name = _ARCHITECTURES[family.name]
    return replace(family, name=name, architecture=name)


def _by_frequency(config: ModelConfig) -> bool:
    """Return True if a GGUF file needs a divisor for each rotary frequency: for all scalings except
    linear, NTK, and YaRN with its usual ramp. The file's metadata can describe these three. Of
    llama.cpp's architectures, only `llama` reads divisors."""
    scaling = config.position.scaling if isinstance(config.position, Rope) else None
    if scaling is None or scaling.kind in ("linear", "ntk"):
        return False
    return scaling.kind != "yarn" or (scaling.beta_fast, scaling.beta_slow) != (32, 1)


def export_gguf(
    run: Path, file: Path, finish: Finish, *, dtype: str = "float32", which: str = "best"
) -> Exported:
    """Export the ``best`` or ``last`` checkpoint of ``run`` to ``file``, completely or not at all.
    One tensor at a time is in memory. ``dtype``: a key of DTYPES. With q8_0, a matrix whose rows
    are not a multiple of 32 numbers is float16. Raises ``LlmcurateError``, for instance if
    llama.cpp has no architecture for the model or cannot hold its tokenizer."""
    if file.exists():
        raise UsageError(f"{file} exists already: give a new file")
    checkpoint, plan = chosen(run, which)
    config, own = plan.model, architecture_of(plan.model)
    tensors = list(_tensors(own, config, weights_of(checkpoint), DTYPES[dtype]))
    with replacing(file) as aside:
        writer = gguf.GGUFWriter(aside, own.name)
        writer.add_name(run.resolve().name)
        own_type = f"_{DTYPES[dtype]}"
        writer.add_file_type(next(t for t in gguf.LlamaFileType if t.name.endswith(own_type)))
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        _add_settings(writer, config)
        finish(writer, tokenizer_of(checkpoint), config.vocab)
        for name, kind, shape, _ in tensors:
            size = gguf.quant_shape_to_byte_shape(shape, kind)
            writer.add_tensor_info(name, size, np.dtype(np.uint8), prod(size), kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for _, kind, _, load in tensors:
            writer.write_tensor_data(gguf.quants.quantize(load().float().numpy(), kind))
        writer.close()
    return exported([file], own, config, checkpoint, dtype)


def _add_settings(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    shape, forward = config.attention, config.feed_forward
    writer.add_vocab_size(config.vocab)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.hidden)
    writer.add_block_count(config.layers)
    writer.add_feed_forward_length(forward.width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    rms = config.norm.kind == "rms"
    (writer.add_layer_norm_rms_eps if rms else writer.add_layer_norm_eps)(config.norm.eps)
    if isinstance(forward, Experts):
        writer.add_expert_count(forward.count)
        writer.add_expert_used_count(forward.top_k)
    if not isinstance(config.position, Rope):
        return
    keys, factor = dict(rope_keys(config)), rope_frequencies(config)[1]
    writer.add_rope_dimension_count(config.rotated)
    writer.add_rope_freq_base(keys["rope_theta"])
    if (scaling := keys["rope_scaling"]) is not None and not _by_frequency(config):
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling["rope_type"]))
        writer.add_rope_scaling_factor(scaling["factor"])
        if scaling["rope_type"] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
            factor /= temperature(scaling["factor"])  # llama.cpp multiplies by it
    if factor != 1:
        writer.add_rope_scaling_attn_factors(factor)


def _tensors(
    own: Family, config: ModelConfig, weights: Mapping[str, Tensor], dtype: str
) -> Iterator[tuple[str, gguf.GGMLQuantizationType, tuple[int, ...], Callable[[], Tensor]]]:
    """Yield (name, type, shape, function that reads the values) of each tensor of a file."""
    kinds, position = gguf.GGMLQuantizationType, config.position
    if isinstance(position, Rope) and _by_frequency(config):
        usual = rope_frequencies(replace(config, position=replace(position, scaling=None)))[0]
        divisors = usual / rope_frequencies(config)[0]
        yield "rope_freqs.weight", kinds.F32, tuple(divisors.shape), lambda: divisors
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[own.name.upper()], config.layers)
    empty = {name: torch.empty(size, device="meta") for name, size in our_shapes(config).items()}
    shape_of = config.attention
    # llama rotates rows 2 i and 2 i + 1 of each of these heads together.
    heads = {"query": shape_of.heads, "key": shape_of.kv_heads} if own.name == "llama" else {}

    def packed(weight: Weight, tensors: Mapping[str, Tensor]) -> Tensor:
        # Matrices are [outputs, inputs], and all experts are in one tensor.
        joined = torch.cat([tensors[name] for name in weight.ours])
        count = heads.get(weight.ours[0].split(".")[-2])
        layout = reordered(count, rows_in_pairs(shape_of.head_dim)) if count else UNCHANGED
        return layout.pack([joined])

    for weight in own.weights(config):
        if weight.expert:  # the tensor of expert 0 has all of them
            continue
        theirs = weight.theirs.replace(".experts.0.", ".experts.")
        found: Any = names.get_type_and_name(theirs, (".weight", ".bias"))
        shape = tuple(packed(weight, empty).shape)
        kind = kinds[dtype]
        if len(shape) == 1 or found[0].name in ("FFN_GATE_INP", "POS_EMBD"):
            kind = kinds.F32
        elif shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
            kind = kinds.F16
        yield found[1], kind, shape, partial(packed, weight, weights)
