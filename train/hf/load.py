"""Import of a transformers folder as an llmcurate model.

The folder is not trusted: only JSON and safetensors are read, no path in these files is followed,
and no memory is allocated before the sizes in the files have been found to agree.
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
from llmcurate.base.settings import from_dict, unflatten
from train.config import TrainConfig
from train.data.shards import load_tokenizer
from train.hf.families import FAMILIES
from train.hf.family import Family, with_saved_head
from train.measure.accounting import parameters
from train.model.config import ModelConfig
from train.model.convert import OF_TOKENS
from train.runs.checkpoint import (
    Keep,
    Snapshot,
    State,
    checkpoint_to_use,
    complete,
    load_plan,
    model_of,
    newest,
    weights_of,
    write,
)
from train.runs.plan import Plan

_FILE = re.compile(r"[\w.-]+\.safetensors")
_FLOATS = ("F64", "F32", "F16", "BF16")
# Tables that older versions saved with the weights: causal masks and rotary tables.
_TABLES = re.compile(
    r"(\.attn\.(bias|masked_bias)|\.attention\.(bias|masked_bias)|\.inv_freq|\.embed_positions)$"
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """An inspected transformers folder: its model, and the file of each tensor."""

    folder: Path
    family: Family
    config: ModelConfig
    files: Mapping[str, tuple[Path, str]]  # name in the family: (file, name in the file)


def load(folder: Path, *, context: int | None = None) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return a model and its float32 weights by our names, from a transformers folder or the best
    checkpoint of a run. ``context``, if given, replaces the model's, unless positions are
    learned."""
    checkpoint = checkpoint_to_use(folder)
    if checkpoint is not None:
        return model_of(checkpoint), dict(weights_of(checkpoint))
    source = inspect_folder(folder, context=context)
    return source.config, dict(_tensors(source))


def tensors_of(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a transformers folder or of a run's newest checkpoint, one at a time."""
    checkpoint = newest(folder / "checkpoints")
    if checkpoint is not None:
        yield from weights_of(checkpoint).items()
    else:
        yield from _tensors(inspect_folder(folder))


@dataclass(frozen=True, kw_only=True)
class Imported:
    family: str
    parameters: int
    vocab: int
    context: int
    checkpoint: str


def import_model(folder: Path, out: Path, *, context: int | None = None) -> Imported:
    """Write the model of a transformers folder as a checkpoint of step 0 in ``out``."""
    if complete(out / "checkpoints"):
        raise UsageError(f"{out} holds a model already: give another folder")
    source = inspect_folder(folder, context=context)
    tokens = tokenizer_file(folder)
    check_ids(tokens, load_tokenizer(tokens), source.config)
    weights = dict(_tensors(source))
    settings = TrainConfig(context=min(source.config.context, TrainConfig.context))
    plan = Plan(model=source.config, train=settings, shards=f"imported from {source.family.name}")
    final = _write_run(out, tokens, plan, weights)
    return Imported(
        family=source.family.name,
        parameters=parameters(source.config),
        vocab=source.config.vocab,
        context=source.config.context,
        checkpoint=final,
    )


def tokenizer_file(folder: Path) -> Path:
    """Return the path of a model's tokenizer.json. Raises ``LlmcurateError`` if it is missing."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UsageError(
            f"{folder}: no tokenizer.json; write one there first (`llmcurate tokenizer convert`)"
        )
    return path


def check_ids(path: Path, tokenizer: Tokenizer, config: ModelConfig) -> None:
    """Raise ``LlmcurateError`` if the tokenizer has an id outside the model's vocabulary."""
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= config.vocab:
        raise RunFailed(f"{path}: has id {largest}, but the model {counted(config.vocab, 'token')}")


def _write_run(out: Path, tokenizer: Path, plan: Plan, weights: dict[str, Tensor]) -> str:
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "tokenizer.json", tokenizer.read_bytes())
    snapshot = Snapshot(plan=plan, state=State(step=0, tokens=0), tensors={"model": weights})
    return f"checkpoints/{write(out / 'checkpoints', snapshot, Keep(newest=1)).name}"


def inspect_folder(folder: Path, *, context: int | None = None) -> Source:
    """Return the family, the settings and the tensors of a transformers folder. Raises
    ``LlmcurateError`` if the folder cannot be imported."""
    path = folder / "config.json"
    if not path.is_file():
        raise UsageError(f"{folder}: no config.json; give a model's folder")
    values = read_json(path)
    name = values.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise UsageError(f"{path}: model_type is {name!r}: expected one of {', '.join(FAMILIES)}")
    family = FAMILIES[name]
    settings = family.settings(values, str(path))
    if values.get("quantization_config"):
        raise settings.refusal("quantization_config", "set", "quantised weights are not supported")
    fields = family.read(settings, context).ours | {"vocab": settings.whole("vocab_size")}
    try:
        config = from_dict(ModelConfig, unflatten(fields), str(path))
    except LlmcurateError as error:
        raise UsageError(f"{path}: {error}") from error
    config = with_saved_head(family, config, settings)
    tensors = _headers(folder)
    total = sum(torch.Size(shape).numel() for _, _, shape in tensors.values())
    if parameters(config) > total:
        raise UsageError(
            f"{folder}: config.json describes {parameters(config):,} parameters, the files hold "
            f"{total:,}"
        )
    return Source(
        folder=folder, family=family, config=config, files=_match(folder, family, config, tensors)
    )


def _headers(folder: Path) -> dict[str, tuple[Path, str, tuple[int, ...]]]:
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
            raise UsageError(f"{index}: {name!r} is not a file in the same folder")
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
    """Return the file of each tensor. Raises ``LlmcurateError`` for missing or unknown tensors."""
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
                f"{path}: {name} is {dtype} {list(shape)}, config.json requires floating point "
                f"{list(weight.shape)}"
            )
        files[weight.theirs] = path, name
    if missing:
        raise UsageError(f"{folder}: {_first_names(missing)} missing from the weights")
    copies = (*family.copies, *(["lm_head.weight"] if config.head.tied else []))
    for tied in (spelling for name in copies for spelling in _spellings(name, family)):
        if tied in unmatched:
            _check_equal(unmatched.pop(tied)[0], tied, files[f"{family.parts[0].theirs}.weight"])
    if unmatched:
        raise UsageError(
            f"{folder}: the weights hold {_first_names(sorted(unmatched))}, which {family.name}"
            " does not have with this config.json"
        )
    return files


def _spellings(name: str, family: Family) -> Iterator[str]:
    """Yield the names that a tensor may have in a file: its name in the installed version of
    transformers, in a file saved without the head, and in other versions."""
    yield name
    yield name.removeprefix(family.prefix)
    if name.startswith("embed_out."):
        yield name.replace("embed_out.", "lm_head.")
    if name == "lm_head.weight":
        yield "embed_out.weight"


def _check_equal(path: Path, head: str, embedding: tuple[Path, str]) -> None:
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


# (table: float32[old tokens, width], index of the table) to float32[new tokens, width].
Rows = Callable[[npt.NDArray[np.float32], int], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Transplanted:
    """The result of ``transplant``: new vocabulary size, changed tables, checkpoint written."""

    vocab: int
    tables: list[str]
    checkpoint: str


def transplant(folder: Path, out: Path, tokenizer: Path, rows: Rows) -> Transplanted:
    """Give a model another ``tokenizer`` (a tokenizer.json), and write it as a checkpoint of step 0
    in ``out``. ``rows`` turns a table with a row for each old token into one with a row for each
    new token. Raises ``LlmcurateError``, for instance if ``out`` holds a model already."""
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
    final = _write_run(out, tokenizer, plan, weights)
    return Transplanted(vocab, changed, final)
