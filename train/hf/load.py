"""Read a folder of transformers' as one of our models.

The folder may be anyone's: only JSON and safetensors are read, nothing in it names a path, and
nothing is allocated before the sizes in the files agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.settings import from_dict, unflat
from train.config import TrainConfig
from train.data.shards import load_tokenizer
from train.hf.families import FAMILIES
from train.hf.family import Family, as_saved
from train.measure.accounting import parameters
from train.model.config import ModelConfig
from train.model.convert import OF_TOKENS
from train.runs.checkpoint import (
    Keep,
    Snapshot,
    State,
    complete,
    load_plan,
    model_of,
    newest,
    to_use,
    weights_of,
    write,
)
from train.runs.plan import Plan

_FILE = re.compile(r"[\w.-]+\.safetensors")
_FLOATS = ("F64", "F32", "F16", "BF16")
# What older versions saved beside the weights: causal masks and rotary tables.
_TABLES = re.compile(
    r"(\.attn\.(bias|masked_bias)|\.attention\.(bias|masked_bias)|\.inv_freq|\.embed_positions)$"
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder that was looked through: its model, and where each of its tensors is."""

    folder: Path
    family: Family
    config: ModelConfig
    files: Mapping[str, tuple[Path, str]]  # name in the family: file, name there


def load(folder: Path, *, context: int | None = None) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The model in a folder of transformers' or of ours (its best checkpoint), and its weights by
    our names, float32.

    ``context``: its longest text, where its positions allow another than the file's. Raises
    ``LlmcurateError``.
    """
    checkpoint = to_use(folder)
    if checkpoint is not None:
        return model_of(checkpoint), dict(weights_of(checkpoint))
    source = look(folder, context=context)
    return source.config, dict(_tensors(source))


def tensors_of(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The weights that ``load`` gives, one at a time."""
    checkpoint = newest(folder / "checkpoints")
    if checkpoint is not None:
        yield from weights_of(checkpoint).items()
    else:
        yield from _tensors(look(folder))


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What was written."""

    family: str
    parameters: int
    vocab: int
    context: int
    checkpoint: str


def import_model(folder: Path, out: Path, *, context: int | None = None) -> Imported:
    """The model of ``folder`` as a checkpoint of step 0 in ``out``, which generation and export
    read; returns what was written. Raises ``LlmcurateError``.
    """
    if complete(out / "checkpoints"):
        raise UsageError(f"{out} holds a model already: give another folder")
    source = look(folder, context=context)
    tokens = tokenizer_file(folder)
    check_ids(tokens, load_tokenizer(tokens), source.config)
    weights = dict(_tensors(source))
    settings = TrainConfig(context=min(source.config.context, TrainConfig.context))
    plan = Plan(model=source.config, train=settings, shards=f"imported from {source.family.name}")
    final = _begin(out, tokens, plan, weights)
    return Imported(
        family=source.family.name,
        parameters=parameters(source.config),
        vocab=source.config.vocab,
        context=source.config.context,
        checkpoint=final,
    )


def tokenizer_file(folder: Path) -> Path:
    """A model's tokenizer.json; raises ``LlmcurateError`` where there is none."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UsageError(
            f"{folder}: no tokenizer.json; write one there first (`llmcurate tokenizer convert`)"
        )
    return path


def check_ids(path: Path, tokenizer: Tokenizer, config: ModelConfig) -> None:
    """Raise ``LlmcurateError`` where the tokenizer has a token that the model does not know."""
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= config.vocab:
        raise RunFailed(f"{path}: has token {largest}, the model {counted(config.vocab, 'token')}")


def _begin(out: Path, tokenizer: Path, plan: Plan, weights: dict[str, Tensor]) -> str:
    """A run of step 0 with these weights; the name of its checkpoint."""
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "tokenizer.json", tokenizer.read_bytes())
    snapshot = Snapshot(plan=plan, state=State(step=0, tokens=0), tensors={"model": weights})
    return f"checkpoints/{write(out / 'checkpoints', snapshot, Keep(newest=1)).name}"


def look(folder: Path, *, context: int | None = None) -> Source:
    """Find the family, the configuration and the tensors; refuses in one line what does not fit."""
    path = folder / "config.json"
    if not path.is_file():
        raise UsageError(f"{folder}: no config.json; give a model's folder")
    values = read_json(path)
    name = values.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise UsageError(f"{path}: model_type is {name!r}: known are {', '.join(FAMILIES)}")
    family = FAMILIES[name]
    settings = family.settings(values, str(path))
    if values.get("quantization_config"):
        raise settings.refusal("quantization_config", "set", "give the weights unquantised")
    fields = family.read(settings, context).ours | {"vocab": settings.whole("vocab_size")}
    try:
        config = from_dict(ModelConfig, unflat(fields), str(path))
    except LlmcurateError as error:
        raise UsageError(f"{path}: {error}") from error
    config = as_saved(family, config, settings)
    tensors = _headers(folder)
    total = sum(torch.Size(shape).numel() for _, _, shape in tensors.values())
    if parameters(config) > total:
        raise UsageError(
            f"{folder}: config.json speaks of {parameters(config):,} parameters, the files hold "
            f"{total:,}"
        )
    return Source(
        folder=folder, family=family, config=config, files=_match(folder, family, config, tensors)
    )


def _headers(folder: Path) -> dict[str, tuple[Path, str, tuple[int, ...]]]:
    """File, type and shape of every tensor, from the files' headers."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        names = [single.name]
    elif index.is_file():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise UsageError(f"{index}: no weight_map")
        names = sorted({str(file) for file in weight_map.values()})
    else:
        raise UsageError(
            f"{folder}: no model.safetensors; pickled weights are not read, save them with "
            "safe_serialization=True"
        )
    headers: dict[str, tuple[Path, str, tuple[int, ...]]] = {}
    for name in names:
        path = folder / name
        if not _FILE.fullmatch(name) or not path.is_file():
            raise UsageError(f"{index}: {name!r} is no file beside it")
        try:
            with safe_open(path, framework="pt") as file:
                for tensor in file.offset_keys():
                    part = file.get_slice(tensor)
                    headers[tensor] = path, part.get_dtype(), tuple(part.get_shape())
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{path}: cannot be read ({error})") from error
    return headers


def _match(
    folder: Path,
    family: Family,
    config: ModelConfig,
    tensors: Mapping[str, tuple[Path, str, tuple[int, ...]]],
) -> dict[str, tuple[Path, str]]:
    """Where each tensor of the family is; every one must be there, and nothing besides."""
    unmatched = {
        name: source
        for name, source in tensors.items()
        if not _TABLES.search(name) and not family.leaves_out(name, config)
    }
    files: dict[str, tuple[Path, str]] = {}
    missing: list[str] = []
    for weight in family.weights(config):
        name = next(
            (spelling for spelling in _spellings(weight.theirs, family) if spelling in unmatched),
            None,
        )
        if name is None:
            missing.append(weight.theirs)
            continue
        path, dtype, shape = unmatched.pop(name)
        if shape != weight.shape or dtype not in _FLOATS:
            raise UsageError(
                f"{path}: {name} is {dtype} {list(shape)}, config.json says {list(weight.shape)} "
                "numbers with a point"
            )
        files[weight.theirs] = path, name
    if missing:
        raise UsageError(f"{folder}: {_first_names(missing)} missing in the weights")
    copies = (*family.copies, *(["lm_head.weight"] if config.head.tied else []))
    for copy in (spelling for name in copies for spelling in _spellings(name, family)):
        if copy in unmatched:
            _same(unmatched.pop(copy)[0], copy, files[f"{family.parts[0].theirs}.weight"])
    if unmatched:
        raise UsageError(
            f"{folder}: the weights hold {_first_names(sorted(unmatched))}, which {family.name} as"
            " config.json describes it has not"
        )
    return files


def _spellings(name: str, family: Family) -> Iterator[str]:
    """A tensor's names: now, saved without the head, and in other versions."""
    yield name
    yield name.removeprefix(family.prefix)
    if name.startswith("embed_out."):
        yield name.replace("embed_out.", "lm_head.")
    if name == "lm_head.weight":
        yield "embed_out.weight"


def _same(path: Path, head: str, embedding: tuple[Path, str]) -> None:
    with safe_open(path, framework="pt") as first, safe_open(embedding[0], framework="pt") as other:
        if not torch.equal(first.get_tensor(head), other.get_tensor(embedding[1])):
            raise UsageError(
                f"{path}: {head} differs from the embedding that config.json ties it to"
            )


def _tensors(source: Source) -> Iterator[tuple[str, Tensor]]:
    experts: list[Tensor] = []
    for weight in source.family.weights(source.config):
        path, name = source.files[weight.theirs]
        with safe_open(path, framework="pt") as file:
            theirs = file.get_tensor(name).float()
        if weight.of:
            experts = [*experts, theirs] if weight.expert else [theirs]
            if len(experts) == weight.of:
                yield weight.ours[0], torch.stack(experts)
            continue
        for our_name, tensor in zip(weight.ours, weight.layout.unpack(theirs), strict=True):
            yield our_name, tensor.contiguous().clone()


def _first_names(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


# (a table: float32[old tokens, width], its number) to float32[new tokens, width].
Rows = Callable[[npt.NDArray[np.float32], int], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Transplanted:
    """The new number of tokens, the tables that changed, and the checkpoint."""

    vocab: int
    tables: list[str]
    checkpoint: str


def transplant(folder: Path, out: Path, tokenizer: Path, rows: Rows) -> Transplanted:
    """The model of ``folder``, ours or of transformers, as a checkpoint of step 0 in ``out``, with
    ``tokenizer`` (a tokenizer.json) in place of its own; returns what was written. ``rows``: what
    becomes of each table that has a row a token. Raises ``LlmcurateError``.
    """
    if complete(out / "checkpoints"):
        raise UsageError(f"{out} holds a model already: give another folder")
    config, weights = load(folder)
    checkpoint = newest(folder / "checkpoints")
    vocab = max(load_tokenizer(tokenizer).get_vocab(with_added_tokens=True).values()) + 1
    changed: list[str] = []
    for name, weight in weights.items():
        if OF_TOKENS.fullmatch(name) and len(weight) == config.vocab:
            table = weight.float().reshape(config.vocab, -1).numpy()
            exchanged = torch.from_numpy(rows(table, len(changed)))
            if len(exchanged) != vocab:
                raise RunFailed(
                    f"{name}: {counted(len(exchanged), 'row')} for {counted(vocab, 'token')}"
                )
            weights[name] = exchanged.reshape(vocab, *weight.shape[1:])
            changed.append(name)
    settings = TrainConfig(context=min(config.context, TrainConfig.context))
    if checkpoint is not None:
        settings = replace(settings, objective=load_plan(checkpoint).train.objective)
    plan = Plan(model=replace(config, vocab=vocab), train=settings, shards="another tokenizer")
    final = _begin(out, tokenizer, plan, weights)
    return Transplanted(vocab, changed, final)
