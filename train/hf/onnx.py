"""Write an encoder as an ONNX model for llmcurate's steps `classifier` and `dedup_semantic`.

OUT/  model.onnx  model.onnx.data  config.json  tokenizer.json  tokenizer_config.json
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.sealed_json import encode_json
from llmcurate.base.errors import RunFailed, UsageError, first_line
from llmcurate.base.tokenizer_file import load_tokenizer
from train.data.vocabulary import around_texts, roles_of_run
from train.hf import keys
from train.hf.export import (
    Exported,
    check_new,
    chosen,
    config_json,
    exported,
    write_tokenizer,
)
from train.hf.families import family_of
from train.hf.family import CLASSES, Family
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.objective_settings import Task
from train.runs.checkpoint import tokenizer_of, weights_of

_UNKNOWN = Family(  # an encoder that transformers has no class for
    name="encoder",
    architecture="EncoderForMaskedLM",
    keys=(keys.length("max_position_embeddings"),),
    parts=(),
)


def encoder_family(config: ModelConfig) -> Family:
    """Return the family that writes the config.json of an ONNX model, whatever the model's task.
    Raises ``LlmcurateError`` if the model is no encoder."""
    if config.form != "encoder":
        raise UsageError(f"--format onnx takes encoders; the model is of the form {config.form}")
    try:
        family = family_of(replace(config, head=replace(config.head, task=None)))
    except UsageError:
        family = _UNKNOWN
    return replace(family, tasks=dict.fromkeys(CLASSES, ()))


def export_onnx(run: Path, out: Path, *, dtype: str = "float32", which: str = "best") -> Exported:
    """Export the encoder in the ``best`` or ``last`` checkpoint of ``run`` to ``out``, a new
    folder, completely or not at all. The exported tokenizer adds the same tokens around a text as
    in training. Raises ``LlmcurateError``, for instance for a ``dtype`` other than float32."""
    if dtype != "float32":
        raise UsageError(f"dtype {dtype!r}: --format onnx writes float32")
    check_new(out)
    checkpoint, plan = chosen(run, which)
    family, config = encoder_family(plan.model), plan.model
    for library in ("onnx", "onnxscript"):
        import_module(library)
    model, weights = Decoder(config).eval(), weights_of(checkpoint)
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    path, own = tokenizer_of(checkpoint), plan.train.objective
    tokenizer = load_tokenizer(path)
    roles = roles_of_run(path, tokenizer)
    roles = replace(roles, begin=roles.end)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as aside:
        aside.mkdir()
        foreign = config.head.task is not None and not isinstance(own, Task)
        around = None if foreign else around_texts(path, tokenizer)
        write_tokenizer(aside, path, tokenizer, roles, config, around)
        values = dict(config_json(config, family, roles))
        (aside / "config.json").write_bytes(encode_json(values))
        encoder = Encoder(model, isinstance(own, Task) and own.reads == "last")
        try:
            _write(encoder, aside / "model.onnx")
        except Exception as error:  # PyTorch raises many kinds
            raise RunFailed(
                f"{run}: PyTorch cannot write it as ONNX: {first_line(error)}"
            ) from None
    return exported(sorted(out.glob("model.onnx*")), family, config, checkpoint, "float32")


class Encoder(nn.Module):
    """An encoder of padded texts. A text is classified by its last token if ``read_last`` is set,
    else by its first token."""

    def __init__(self, model: Decoder, read_last: bool) -> None:
        super().__init__()
        self.model, self.task, self.read_last = model, model.config.head.task, read_last

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Return the logits of the task, or without a task the features [batch, length, hidden].
        Inputs are int64 [batch, length]."""
        x = self.model.features(input_ids, documents=attention_mask - 1, segments=token_type_ids)
        if self.task is None:
            return x
        if self.task.kind in ("classify", "choice"):
            last = attention_mask.sum(-1) - 1
            x = x[torch.arange(len(x)), last] if self.read_last else x[:, 0]
        logits = self.model.logits(x)
        return logits.unbind(-1) if self.task.kind == "span" else logits


def _write(encoder: Encoder, path: Path) -> None:
    config = encoder.model.config
    kinds = ["token_type_ids"] if config.embedding.segments > 1 else []
    inputs = ["input_ids", "attention_mask", *kinds]
    kind = None if encoder.task is None else encoder.task.kind
    outputs = ["last_hidden_state" if kind is None else "logits"]
    if kind == "span":
        outputs = ["start_logits", "end_logits"]
    shape = {0: Dim("batch"), 1: Dim("length", min=3, max=config.context)}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        texts = tuple(torch.ones(2, 4, dtype=torch.long) for _ in inputs)
        program = torch.export.export(encoder, texts, dynamic_shapes=(shape,) * len(inputs))
        program = program.run_decompositions({torch.ops.aten.cummax.default: _running_maximum})
        torch.onnx.export(
            program, (), path, input_names=inputs, output_names=outputs, dynamo=True, verbose=False
        )


def _running_maximum(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Compute torch.cummax of int64 [batch, length] along the length, as ONNX has no such
    operator."""
    index = torch.arange(x.shape[dim])
    lowest = torch.iinfo(x.dtype).min
    found = torch.where(index <= index[:, None], x[:, None], lowest).max(-1)
    return found.values, found.indices
