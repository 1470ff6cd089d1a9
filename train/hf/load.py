"""Import of a transformers folder as an llmcurate model.

The folder is not trusted: no code in it is run, no path in its files is followed, and no memory is
allocated before the sizes in the files have been found to agree. If the weights do not have the
names that our own export writes, transformers' own class loads them."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError, first_line
from llmcurate.base.roles import Roles, copy_beside
from llmcurate.base.tokenizer_file import load_tokenizer, read_file, roles_of, size_of
from train.config import TrainConfig
from train.data.vocabulary import roles_of_run
from train.hf.families import FAMILIES
from train.hf.family import Family
from train.measure.accounting import parameters
from train.model.config import ModelConfig
from train.model.convert import OF_TOKENS
from train.runs.checkpoint import (
    Keep,
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

# In the order in which transformers looks for them.
_WEIGHTS = [
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
]
_FILE = re.compile(r"[\w.-]+\.(safetensors|bin)")
# The beginning of the names of the part for text in a model that also reads images.
_OF_TEXT = re.compile(r"^language_model\.|(?<=^model\.)language_model\.")
# Tables that older versions saved with the weights: masks, positions and rotary frequencies.
_TABLES = re.compile(r"(\.(attn|attention)\.(masked_)?bias|\.inv_freq|[._]position_ids)$")


@dataclass(frozen=True, kw_only=True)
class Source:
    """An inspected transformers folder: its model, its file or index of weights, and each tensor by
    its name in the files. The tensors are mapped from the files, not read."""

    path: Path
    family: Family
    config: ModelConfig
    saved: Mapping[str, tuple[Path, Tensor]]


def load(folder: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return a model's configuration and its float32 weights by our names. ``folder`` is a
    transformers folder, or a run, whose best checkpoint is read."""
    checkpoint = checkpoint_to_use(folder)
    if checkpoint is not None:
        return model_of(checkpoint), dict(weights_of(checkpoint))
    source = inspect_folder(folder)
    return source.config, dict(_ours(source, _named(source)[0]))


def tensors_of(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a transformers folder or of a run's newest checkpoint, one at a time."""
    checkpoint = newest(folder / "checkpoints")
    if checkpoint is not None:
        yield from weights_of(checkpoint).items()
    else:
        source = inspect_folder(folder)
        yield from _ours(source, _named(source)[0])


@dataclass(frozen=True, kw_only=True)
class Imported:
    """An imported model. ``left_out``: tensors that the files have and the model's class lacks."""

    family: str
    parameters: int
    vocab: int
    context: int
    checkpoint: str
    left_out: list[str]


def import_model(folder: Path, out: Path, *, context: int | None = None) -> Imported:
    """Write the model of a transformers folder to ``out`` as a checkpoint of step 0, with its
    tokenizer, the tokenizer's other files and the roles of special tokens."""
    if complete(out / "checkpoints"):
        raise UsageError(f"{out} holds a model already: give another folder")
    source = inspect_folder(folder, context=context)
    tokens = tokenizer_file(folder)
    tokenizer = load_tokenizer(tokens)
    check_ids(tokens, tokenizer, source.config)
    named, left_out = _named(source)
    weights = dict(_ours(source, named))
    settings = TrainConfig(context=min(source.config.context, TrainConfig.context))
    plan = Plan(model=source.config, train=settings, shards=f"imported from {source.family.name}")
    final = _write_run(out, tokens, roles_of(tokens, tokenizer), plan, weights)
    return Imported(
        family=source.family.name,
        parameters=parameters(source.config),
        vocab=source.config.vocab,
        context=source.config.context,
        checkpoint=final,
        left_out=left_out,
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
    size, vocab = size_of(tokenizer), config.vocab
    if size > vocab:
        raise RunFailed(f"{path}: has id {size - 1}, but the model {counted(vocab, 'token')}")


def _write_run(
    out: Path, tokenizer: Path, roles: Roles, plan: Plan, weights: dict[str, Tensor]
) -> str:
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "tokenizer.json", read_file(tokenizer))
    copy_beside(tokenizer, out)
    roles.write(out)
    state, folder = State(step=0, tokens=0), out / "checkpoints"
    return f"checkpoints/{write(folder, plan, state, {'model': weights}, Keep(newest=1)).name}"


def inspect_folder(folder: Path, *, context: int | None = None) -> Source:
    """Return the family, the settings and the tensors of a transformers folder. Raises
    ``LlmcurateError`` if the folder cannot be imported."""
    path = folder / "config.json"
    if not path.is_file():
        raise UsageError(f"{folder}: no config.json; give a model's folder")
    values = read_json(path)
    quantised, name = values.get("quantization_config"), values.get("model_type")
    inner, text = values.get("text_config"), f"{name}_text"
    if nested := isinstance(inner, dict) and text in FAMILIES:  # it also reads images
        values, name = dict(inner or {}), text
    if not isinstance(name, str) or name not in FAMILIES:
        raise UsageError(f"{path}: model_type is {name!r}: expected one of {', '.join(FAMILIES)}")
    family = FAMILIES[name]
    settings = family.settings(values, str(path))
    if quantised:
        raise settings.refusal("quantization_config", "set", "quantised weights are not supported")
    config = family.config(settings, context)
    listing, saved = _saved(folder)
    if nested:
        saved = {_OF_TEXT.sub("", key): stored for key, stored in saved.items()}
    held = sum(file.stat().st_size for file in {file for file, _ in saved.values()})
    if 2 * parameters(config) > held:
        raise UsageError(
            f"{folder}: config.json describes {parameters(config):,} parameters, the files hold "
            f"{held:,} bytes"
        )
    return Source(path=listing, family=family, config=config, saved=saved)


def _saved(folder: Path) -> tuple[Path, dict[str, tuple[Path, Tensor]]]:
    """Return the file of a folder's weights, or the index of several files, and a dict from the
    name of each tensor to (file, tensor)."""
    listing = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if listing is None:
        raise UsageError(f"{folder}: no model.safetensors or pytorch_model.bin")
    names = [listing.name]
    if listing.suffix == ".json":
        weight_map = read_json(listing).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise UsageError(f"{listing}: no weight_map")
        names = sorted({str(file) for file in weight_map.values()})
    saved: dict[str, tuple[Path, Tensor]] = {}
    for name in names:
        path = folder / name
        if not _FILE.fullmatch(name) or not path.is_file():
            raise UsageError(f"{listing}: {name!r} is not a file in the same folder")
        try:
            tensors = _unpickled(path) if path.suffix == ".bin" else load_file(path)
        except LlmcurateError:
            raise
        except Exception as error:  # both libraries raise many kinds
            raise UsageError(f"{path}: cannot be read ({first_line(error)})") from None
        saved |= {key: (path, tensor) for key, tensor in tensors.items()}
    return listing, saved


def _unpickled(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file that torch.save wrote. Its pickle may only build tensors."""
    size, zipped = path.stat().st_size, zipfile.is_zipfile(path)  # no zip before torch 1.6
    if zipped:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        plain = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
        if not plain or sum(entry.file_size for entry in entries) > size:
            raise UsageError(f"{path}: its parts are compressed, which torch.save never does")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise UsageError(f"{path}: {name} is no tensor")
        if tensor.nbytes > size:
            raise UsageError(f"{path}: {name} {list(tensor.shape)} is larger than the file")
    return dict(state)


def _named(source: Source) -> tuple[dict[str, Tensor], list[str]]:
    """Return a folder's tensors by their names in transformers' class, and the names of other
    tensors in the folder. Raises ``LlmcurateError`` if the folder lacks a tensor of the class or
    has it in another shape."""
    family, config, saved = source.family, source.config, dict(source.saved)
    named: dict[str, Tensor] = {}
    for weight in family.weights(config):
        name = weight.theirs
        if name not in saved:  # as in files saved from the class without a head
            name = name.removeprefix(family.prefix)
        if name not in saved:
            return _loaded_by_class(source, weight.theirs)
        path, tensor = saved.pop(name)
        if tuple(tensor.shape) != weight.shape or not _usable(tensor):
            raise UsageError(
                f"{path}: {name} is {_shown(tensor)}, config.json requires floating point "
                f"{list(weight.shape)}"
            )
        named[weight.theirs] = tensor
    embedding = named[f"{family.parts[0].theirs}.weight"]
    for name, (path, tensor) in [*saved.items()] if config.head.tied else ():
        if tensor.shape == embedding.shape:
            if not torch.equal(tensor, embedding):
                raise UsageError(
                    f"{path}: {name} differs from the embedding that config.json ties it to"
                )
            del saved[name]
    return named, [name for name in saved if not _TABLES.search(name)]


def _usable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.itemsize > 1


def _shown(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _loaded_by_class(source: Source, missing: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return the same as ``_named`` for a folder whose weight files name tensors in another way.
    The family's class in the library transformers loads the tensors. The class is configured with
    our settings, so no other file of the folder is used. ``missing``, for an error message: the
    name of a tensor that the files lack."""
    try:
        import transformers
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        raise UsageError(
            f"{source.path}: {missing} is missing from the weights; to read other names of weights "
            "too, run `pip install 'llmcurate[transformers]'`"
        ) from None
    family, config = source.family, source.config
    own = getattr(transformers, family.class_of(config))
    for name, (path, tensor) in source.saved.items():
        if not _usable(tensor) and not _TABLES.search(name):
            raise UsageError(f"{path}: {name} is {_shown(tensor)}, expected floating point")
    transformers.utils.logging.set_verbosity(transformers.utils.logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    try:
        model, report = own.from_pretrained(
            None,
            config=own.config_class(**family.values(config), attn_implementation="eager"),
            state_dict={name: tensor for name, (_, tensor) in source.saved.items()},
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # the library raises many kinds
        raise UsageError(f"{source.path}: cannot be loaded ({first_line(error)})") from None
    for name, theirs, ours in report["mismatched_keys"]:
        path = source.saved.get(name, (source.path,))[0]
        raise UsageError(f"{path}: {name} is {list(theirs)}, config.json requires {list(ours)}")
    if report["missing_keys"]:
        names = first_names(sorted(report["missing_keys"]))
        raise UsageError(f"{source.path}: {names} missing from the weights")
    # The names that files of this class have, not those that these files had.
    model._weight_conversions = None
    return revert_weight_conversion(model, model.state_dict()), sorted(report["unexpected_keys"])


def _ours(source: Source, named: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield our model's tensors, in float32, made from transformers' tensors in ``named``.
    ``named`` loses each tensor after its use."""
    experts: list[Tensor] = []
    for weight in source.family.weights(source.config):
        theirs = named.pop(weight.theirs).float()
        if weight.of:
            experts = [*experts, theirs] if weight.expert else [theirs]
            if len(experts) == weight.of:
                yield weight.ours[0], torch.stack(experts)
            continue
        for our_name, tensor in zip(weight.ours, weight.layout.unpack(theirs), strict=True):
            yield our_name, tensor.contiguous().clone()


def first_names(names: list[str]) -> str:
    """Return the first three names in a sentence, with the number of the others."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


# (table: float32[old tokens, width]) to float32[new tokens, width].
Rows = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Transplanted:
    """The result of ``transplant``: new vocabulary size, changed tables, checkpoint written."""

    vocab: int
    tables: list[str]
    checkpoint: str


def transplant(folder: Path, out: Path, tokenizer: Path, rows: Rows) -> Transplanted:
    """Write a model with another ``tokenizer`` (a tokenizer.json) to ``out`` as a checkpoint of
    step 0. For each table with one row per token, ``rows`` computes the new tokens' rows from the
    old tokens' rows. Raises ``LlmcurateError``, for instance if ``out`` holds a model already."""
    if complete(out / "checkpoints"):
        raise UsageError(f"{out} holds a model already: give another folder")
    config, weights = load(folder)
    checkpoint = newest(folder / "checkpoints")
    loaded, own = load_tokenizer(tokenizer), folder / "tokenizer.json"
    vocab = size_of(loaded)
    roles = roles_of(tokenizer, loaded)
    if checkpoint is not None and own.is_file():
        roles = _behind(roles, roles_of_run(own, load_tokenizer(own)))
    changed: list[str] = []
    for name, weight in weights.items():
        if OF_TOKENS.fullmatch(name) and len(weight) == config.vocab:
            table = weight.float().reshape(config.vocab, -1).numpy()
            exchanged = torch.from_numpy(rows(table))
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
    final = _write_run(out, tokenizer, roles, plan, weights)
    return Transplanted(vocab, changed, final)


def _behind(roles: Roles, old: Roles) -> Roles:
    """Return a new tokenizer's ``roles`` (ids of special tokens), with ``before`` (ids put before a
    text) translated from the ``old`` roles. The old begin token, if it is not the end token as
    well, becomes the new begin token. Other ids become the new end token. Tokens that the new
    tokenizer lacks are left out."""
    named = [roles.begin if n == old.begin != old.end else roles.end for n in old.before]
    return replace(roles, before=tuple(n for n in named if n is not None))
