"""Write a trained model as a folder for transformers.

OUT/  config.json  generation_config.json  tokenizer.json  tokenizer_config.json  README.md
      model.safetensors, or model-00001-of-0000N.safetensors and model.safetensors.index.json
      generator/  for a discriminator trained with a generator: the same files for the generator
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.sealed_json import encode_json, read_json
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError, disk_error
from llmcurate.base.roles import FILE, TOKEN_NAMES, Roles, copy_beside
from llmcurate.base.tokenizer_file import MOST_BYTES, load_tokenizer, roles_of
from train.data.vocabulary import (
    Around,
    around_texts,
    nameless,
    roles_of_run,
    stated_around,
)
from train.hf.families import family_of
from train.hf.family import USES, Family, Weight, our_shapes, task_keys
from train.hf.keys import Pairs
from train.measure.accounting import parameters
from train.model.config import ModelConfig
from train.model.decoder import name_in_whole_model
from train.objective_settings import Task
from train.runs.checkpoint import checkpoint_to_use, load_plan, step_of, tokenizer_of, weights_of
from train.runs.plan import Plan
from train.runs.tensors import write_tensors

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
SHARD_BYTES = 5 * 10**9  # as transformers' save_pretrained


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of an export. ``bytes`` is the total size of the weight ``files``."""

    family: str
    architecture: str
    parameters: int
    checkpoint: str
    dtype: str
    files: list[str]
    bytes: int


def export(
    run: Path,
    out: Path,
    *,
    dtype: str = "float32",
    shard_bytes: int = SHARD_BYTES,
    which: str = "best",
) -> Exported:
    """Export the ``best`` or ``last`` checkpoint of ``run`` to ``out``, a new folder, completely or
    not at all. The generator of an ELECTRA model goes to a subfolder. Raises ``LlmcurateError``,
    for instance if ``out`` has files or no family of transformers fits the model."""
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r}: choose one of {', '.join(DTYPES)}")
    check_new(out)
    checkpoint, plan = chosen(run, which)
    family, task = family_of(plan.model), plan.train.objective
    usual = "last" if plan.model.causal else "first"
    if isinstance(task, Task) and task.kind == "classify" and task.reads not in ("auto", usual):
        raise UsageError(
            f"{run}: it was trained to classify a text by its {task.reads} token (objective.reads),"
            f" but {family.class_of(plan.model)} reads the {usual} one: train it with"
            f" --set objective.reads={usual}"
        )
    weights = weights_of(checkpoint)
    path = tokenizer_of(checkpoint)
    tokenizer = load_tokenizer(path)
    roles = roles_of_run(path, tokenizer)
    if plan.model.form != "decoder":
        roles = dataclasses.replace(roles, begin=roles.end)
    out.parent.mkdir(parents=True, exist_ok=True)

    def write(folder: Path, model: ModelConfig, tensor: Callable[[str], Tensor]) -> list[str]:
        folder.mkdir()
        own = family_of(model)
        files = _write_weights(tensor, folder, own, model, DTYPES[dtype], shard_bytes)
        around = around_texts(path, tokenizer) if isinstance(task, Task) else None
        write_tokenizer(folder, path, tokenizer, roles, model, around)
        config = dict(config_json(model, own, roles, dtype))
        (folder / "config.json").write_bytes(encode_json(config))
        names = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
        ids = {name: config[name] for name in names if name in config}
        generation = folder / "generation_config.json"
        stated = read_json(generation) if generation.is_file() else {}
        if (never := nameless(tokenizer, model.vocab)) is not None and model.writes:
            ids["suppress_tokens"] = never.nonzero()[:, 0].tolist()
        generation.write_bytes(encode_json(stated | ids))
        card = _card(dataclasses.replace(plan, model=model), own, checkpoint.name)
        (folder / "README.md").write_text(card, encoding="utf-8")
        return files

    small = load_plan(checkpoint).model.generator_config
    try:
        with replacing(out) as aside:  # an empty folder is replaced
            files = write(aside, plan.model, weights.__getitem__)
            if small is not None:
                write(
                    aside / "generator",
                    small,
                    lambda name: weights[name_in_whole_model(name, small)],
                )
    except OSError as error:
        raise disk_error(error) or RunFailed(f"{out}: cannot be written ({error})") from error
    return exported([out / name for name in files], family, plan.model, checkpoint, dtype)


def check_new(out: Path) -> None:
    """Raise ``LlmcurateError`` unless ``out`` is an empty folder or does not exist."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already: give a new folder")


def exported(
    files: list[Path], family: Family, model: ModelConfig, checkpoint: Path, dtype: str
) -> Exported:
    """Return the result of an export to ``files``."""
    return Exported(
        family=family.name,
        architecture=family.class_of(model),
        parameters=parameters(model),
        checkpoint=checkpoint.name,
        dtype=dtype,
        files=[file.name for file in files],
        bytes=sum(file.stat().st_size for file in files),
    )


def chosen(run: Path, which: str = "best") -> tuple[Path, Plan]:
    """Return the checkpoint to export and its plan. Modules that only training uses are removed
    from the plan's model."""
    checkpoint = checkpoint_to_use(run, which)
    if checkpoint is None:
        raise UsageError(f"{run}: no finished checkpoint; give the folder a model was trained into")
    plan = load_plan(checkpoint)
    plan = dataclasses.replace(plan, model=plan.model_at(step_of(checkpoint)))
    shapes = weights_of(checkpoint).shapes
    total = sum(shape.numel() for shape in shapes.values())
    if total != parameters(plan.model) or shapes != our_shapes(plan.model):
        raise RunFailed(f"{checkpoint}: the weights do not fit config.json; delete the folder")
    return checkpoint, dataclasses.replace(plan, model=plan.model.trunk)


def config_json(config: ModelConfig, family: Family, roles: Roles, dtype: str = "float32") -> Pairs:
    """Yield the (key, value) pairs of config.json. The decoder of an encoder-decoder starts with
    the end-of-text token unless the model's settings name another."""
    end, pad = roles.end, roles.pad if config.form == "decoder" else None
    yield "architectures", [family.class_of(config)]
    yield from (("model_type", family.name), ("vocab_size", config.vocab), ("pad_token_id", pad))
    yield from family.write(config)
    yield "tie_word_embeddings", config.head.tied
    if config.encoder is not None:
        start = config.encoder.start
        yield "is_encoder_decoder", True
        yield "decoder_start_token_id", end if start is None else start
    yield from task_keys(config)
    yield "bos_token_id", roles.begin
    yield "eos_token_id", list(roles.ends) if len(roles.ends) > 1 else end
    if not config.causal:
        yield from (("cls_token_id", roles.cls), ("sep_token_id", roles.sep))
    yield "torch_dtype", dtype  # every version of transformers reads this key
    yield "use_cache", True


def write_tokenizer(
    folder: Path,
    path: Path,
    tokenizer: Tokenizer,
    roles: Roles,
    model: ModelConfig,
    around: tuple[Around, Around] | None = None,
) -> None:
    """Copy a run's tokenizer.json from ``path``, with the files that belong to it. For a model that
    is a decoder, the copy is changed if it does not put the same tokens before and after a text as
    in training; with ``around``, if it does not put those around a text and around two texts.
    Settings of the run's tokenizer_config.json are kept."""
    shutil.copyfile(path, folder / "tokenizer.json")
    copy_beside(path, folder)
    (folder / FILE).unlink(missing_ok=True)  # config.json states the roles
    path, file = folder / "tokenizer.json", folder / "tokenizer_config.json"
    own = read_json(file) if file.is_file() else {}
    stated = roles_of(path, tokenizer)
    same = (stated.before, stated.behind) == (roles.before, roles.behind)
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config["clean_up_tokenization_spaces"] = False
    if model.embedding.segments < 2:
        config["model_input_names"] = ["input_ids", "attention_mask"]
    if around is not None and around != stated_around(tokenizer):
        write_template(path, tokenizer, *around)
        own.pop("tokenizer_class", None)  # it may replace the post-processor
    elif around is None and model.form == "decoder" and not same:
        # The second text of a pair goes on from the first one.
        text = Around(roles.before, (), roles.behind, 0)
        write_template(path, tokenizer, text, Around(roles.before, roles.behind, (), 0))
        # transformers 4 has classes that replace the post-processor as these keys say.
        own |= {"add_bos_token": bool(roles.before), "add_eos_token": bool(roles.behind)}
    config |= own
    if not config.get("model_max_length", 1e30) < 1e20:  # transformers' "no limit"
        config["model_max_length"] = model.context
    for role, name in TOKEN_NAMES.items():
        number = roles.end if role == "ends" else getattr(roles, role)
        if number is not None:
            config[name] = tokenizer.id_to_token(number)
    file.write_bytes(encode_json(config))


def write_template(path: Path, tokenizer: Tokenizer, single: Around, pair: Around) -> None:
    """Set the tokens that a tokenizer.json puts around a text and around two texts."""
    ids = {n: tokenizer.id_to_token(n) for n in pair.before + pair.between + pair.behind}

    def pieces(numbers: tuple[int, ...], segment: int) -> list[str]:
        return [f"{ids[number]}:{segment}" for number in numbers]

    template = TemplateProcessing(
        [*pieces(single.before, 0), "$A:0", *pieces(single.behind, 0)],
        [
            *(*pieces(pair.before, 0), "$A:0", *pieces(pair.between, 0)),
            *(f"$B:{pair.segment}", *pieces(pair.behind, pair.segment)),
        ],
        [(name, number) for number, name in ids.items()],
    )
    values = read_json(path, limit=MOST_BYTES)
    step = values.get("post_processor") or {}
    # ByteLevel adds no tokens. It says where in a text the tokens are.
    kept = [p for p in step.get("processors", [step]) if p.get("type") == "ByteLevel"]
    processors = [*kept, json.loads(template.__getstate__())]
    values["post_processor"] = {"type": "Sequence", "processors": processors}
    path.write_bytes(encode_json(values))


def _write_weights(
    tensor: Callable[[str], Tensor],
    folder: Path,
    family: Family,
    config: ModelConfig,
    dtype: torch.dtype,
    limit: int,
) -> list[str]:
    files = list(_shards(family.weights(config), dtype.itemsize, limit))
    names = ["model.safetensors"]
    if len(files) > 1:
        count = len(files)
        names = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    weight_map: dict[str, str] = {}
    by_name: dict[str, Weight] = {}

    def packed(theirs: str) -> Tensor:
        weight = by_name[theirs]
        return weight.layout.pack([tensor(own) for own in weight.ours]).to(dtype)

    for name, part in zip(names, files, strict=True):
        by_name = {weight.theirs: weight for weight in part}
        weight_map |= dict.fromkeys(by_name, name)
        shapes = {
            theirs: torch.empty(weight.shape, dtype=dtype, device="meta")
            for theirs, weight in by_name.items()
        }
        write_tensors(folder / name, shapes, {"format": "pt"}, packed)
    if len(files) > 1:
        total = sum(_bytes(weight, dtype.itemsize) for part in files for weight in part)
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_bytes(encode_json(index))
        names.append("model.safetensors.index.json")
    return names


def _shards(weights: Iterator[Weight], width: int, limit: int) -> Iterator[list[Weight]]:
    part: list[Weight] = []
    part_bytes = 0
    for weight in weights:
        size = _bytes(weight, width)
        if part and part_bytes + size > limit:
            yield part
            part, part_bytes = [], 0
        part.append(weight)
        part_bytes += size
    yield part


def _bytes(weight: Weight, width: int) -> int:
    return torch.Size(weight.shape).numel() * width


def _card(plan: Plan, family: Family, checkpoint: str) -> str:
    config = plan.model
    shape = {
        "parameters": f"{parameters(config):,}",
        "context": f"{counted(config.context, 'token')}",
        "checkpoint": checkpoint,
        "token shards": plan.shards[:12],
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in shape.items())
    kind = "discriminator" if config.head.replaced else config.form
    task, auto, sample = _USES[kind]
    if config.head.task is not None:
        chooses = config.head.task.kind == "choice"
        task, auto, sample = *USES[config.head.task.kind], _CHOOSES if chooses else _LABELS
    return f"""---
library_name: transformers
pipeline_tag: {task}
---
A language model ({family.class_of(config)}, {kind}), trained and exported with llmcurate.

| | |
|---|---|
{rows}

```python
{_OPENS.format(auto=auto)}{sample}
```
"""


_OPENS = """\
from transformers import {auto}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = {auto}.from_pretrained(".")
"""
_CONTINUES = """\
ids = tokenizer("The river", return_tensors="pt")
print(tokenizer.decode(model.generate(**ids, max_new_tokens=50)[0]))"""
_FILLS = """\
start = tokenizer.bos_token or ""  # a text begins with the token that ends the one before it
text = f"{start}The{tokenizer.mask_token} runs past the old mill."
ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
place = int((ids.input_ids[0] == tokenizer.mask_token_id).nonzero())
best = model(**ids).logits[0, place].topk(5).indices
print(tokenizer.convert_ids_to_tokens(best))"""
_REWRITES = """\
text = "The river runs past the old mill." + tokenizer.eos_token  # a source ends with it
ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
print(tokenizer.decode(model.generate(**ids, max_new_tokens=50)[0]))"""
_DETECTS = """\
start = tokenizer.bos_token or ""  # a text begins with the token that ends the one before it
ids = tokenizer(start + "The river runs past the cold mill.", return_tensors="pt",
                add_special_tokens=False)
print(model(**ids).logits.sigmoid())  # how likely each token is to have replaced another"""
_LABELS = """\
ids = tokenizer("The river", return_tensors="pt")
print(model(**ids))"""
_CHOOSES = """\
for choice in ("the old mill.", "a verb."):
    ids = tokenizer("The river runs past", choice, return_tensors="pt")
    print(choice, model(**{name: value[None] for name, value in ids.items()}).logits)"""
_USES = {
    "decoder": ("text-generation", "AutoModelForCausalLM", _CONTINUES),
    "encoder": ("fill-mask", "AutoModelForMaskedLM", _FILLS),
    "discriminator": ("feature-extraction", "AutoModelForPreTraining", _DETECTS),
    "encoder-decoder": ("text2text-generation", "AutoModelForSeq2SeqLM", _REWRITES),
}
