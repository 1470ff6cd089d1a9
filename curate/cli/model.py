"""`llmcurate model show` and `list`: the architecture and cost of models, before training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.cli import completion
from curate.cli.options import Json, Sets, TrustCode, group
from curate.cli.settings import command
from curate.products.needs import needs_training
from llmcurate.base.disk.units import counted, format_bytes, format_percent, format_scaled
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import print_result, table

if TYPE_CHECKING:
    from train.model.config import ModelConfig

model_app = group("model", "Show and convert models.", "Train")


@command(model_app, "ModelShow", "show")
def model_show(
    model: Annotated[
        str,
        typer.Argument(
            help="A preset, or the folder of a trained model.", autocompletion=completion.presets
        ),
    ],
    sets: Sets = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Show a model's parameters, costs and memory.

    It shows the cost of training and decoding, and what bounds each operation, compute or memory.

    \b
    Example:
    llmcurate model show llama3-8b --gpu H200 --context 8192
    llmcurate model show 124m --set model.attention.window=64
    """
    from curate.api.model_settings import ModelShow

    chosen = ModelShow.of(**settings)
    with needs_training():
        from train.measure.describe import describe, find_gpu
        from train.model.presets import TRAININGS
        from train.optim.optimizers import OPTIMIZERS

        if chosen.optimizer not in OPTIMIZERS:
            raise UsageError(
                f"--optimizer is {chosen.optimizer!r}: choose one of {', '.join(OPTIMIZERS)}"
            )
        config = config_of(model, chosen.vocab, sets or [])
        published = TRAININGS.get(model)
        tokens = published.tokens if published is not None else None
        facts = describe(
            config,
            device=find_gpu(chosen.gpu),
            rows=chosen.rows,
            context=chosen.context or min(config.context, 4096),
            batch=chosen.batch,
            precision=chosen.precision,
            optimizer=chosen.optimizer,
            recompute=chosen.recompute,
            tokens=chosen.tokens or tokens,
        )
    lines = list(model_lines(model, facts))
    if published is not None:
        facts["published"] = {"source": published.source, **published.values}
        rows = table((), published.table(), left=(0, 1), indent=2)
        lines += ["", "Training as published", *rows]
    print_result(facts, "\n".join(lines), as_json)


def config_of(model: str, vocab: int | None, sets: list[str]) -> ModelConfig:
    """Return the configuration of a preset or a trained model, changed by --set and --vocab. Raises
    UsageError if the folder has no model or no finished checkpoint."""
    from curate.cli.training import a_model
    from curate.products.pretraining import NAMES
    from curate.steps.recipe import Change
    from llmcurate.base.settings import change
    from train.model.presets import PRESETS, preset
    from train.runs.checkpoint import model_of, newest

    items = [Change.of(text).within({"model": NAMES["model"]}) for text in sets]
    changes = {item.key: item.value for item in items}
    if vocab:
        changes["vocab"] = vocab

    folder = Path(model)
    if model not in PRESETS and folder.is_dir():
        checkpoint = newest(folder / "checkpoints")
        if checkpoint is None:
            a_model(folder)
            raise UsageError(f"{model}: this folder has no finished checkpoint")
        return change(model_of(checkpoint), changes, "model")
    return change(preset(model), changes, "model")


@model_app.command("list")
def model_list(as_json: Json = False) -> None:
    """List the presets: names, parameters, architecture."""
    with needs_training():
        from train.measure.accounting import architecture_row, parameters
        from train.model.presets import PRESETS

        facts = []
        for name, build in PRESETS.items():
            config = build()
            facts.append((name, parameters(config), architecture_row(config)))
    listed = [{"name": name, "parameters": total, **row} for name, total, row in facts]
    print_result(listed, "\n".join(preset_lines(facts)), as_json)


def model_lines(name: str, facts: dict[str, Any]) -> Iterator[str]:
    config, total, gpu = facts["config"], facts["parameters"], facts["gpu"]
    active = facts.get("active_parameters")
    meets = f", {_parameters(active)} active per token" if active else ""
    yield f"{name}: {_parameters(total['total'])} parameters{meets}"
    yield ""
    heads = config["attention"]
    sizes = {key: config[key] for key in ("layers", "hidden", "vocab", "context")}
    of_heads = ("heads", "kv_heads", "head_dim", "query_rank", "rank", "rotary_dim")
    sizes |= {key: heads[key] for key in (*of_heads, "plain_dim", "value_dim") if heads.get(key)}
    sizes |= {"feed-forward": config["feed_forward"]["width"]}
    yield "  " + ", ".join(f"{key} {value:,}" for key, value in sizes.items())
    yield from table((), [*facts["row"].items()], left=(0, 1), indent=2)
    yield ""
    yield "Parameters"
    shares = [
        (key, f"{value:,}", format_percent(value / total["total"]))
        for key, value in total.items()
        if value
    ]
    yield from table((), shares, indent=2)
    yield ""
    yield f"Per token, at context {facts['context']:,}"
    costs = [
        ("training", f"{format_scaled(facts['training_flops_per_token'])}FLOP"),
        (
            f"at the peak of one {gpu['name']}",
            f"{facts['tokens_per_second_at_peak']:,.0f} tokens/s",
        ),
    ]
    writes = facts["config"]["causal"]
    if writes:
        costs.append(("KV cache, bf16", f"{facts['cache_bytes_per_token']:,} bytes"))
    yield from table((), costs, indent=2)
    used, tokens = active or total["total"], facts["training_tokens"]
    yield (
        f"Compute, 6 x parameters x tokens ({_parameters(used)} and {_parameters(tokens)}):"
        f" {facts['training_flops']:.1e} FLOP"
    )
    yield ""
    memory = facts["memory"]
    setup = f"{counted(facts['rows'], 'row')} of {counted(facts['context'], 'token')}"
    setup += f", {facts['precision']}"
    setup += f", {facts['optimizer']}" + (", recompute" if facts["recompute"] else "")
    yield f"Training memory ({setup})"
    kinds = ("weights", "gradients", "optimizer", "activations", "peak")
    yield from table((), [(key, format_bytes(memory[key])) for key in kinds], indent=2)
    verdict = "fits" if facts["fits"] else "does not fit"
    yield f"  {verdict} in the {format_bytes(gpu['memory'])} of one {gpu['name']}"
    if not writes:
        return
    yield ""
    yield from _serving(facts["serving"], gpu)
    yield ""
    texts = "one text" if facts["batch"] == 1 else counted(facts["batch"], "text")
    yield (
        f"FLOPs per byte, one layer: below {gpu['ridge']:.0f} memory bounds the {gpu['name']} "
        f"(decoding {texts}: {format_bytes(facts['cache_bytes'])} of KV cache)"
    )
    pairs = zip(facts["training"], facts["decoding"], strict=True)
    bounds = [
        (a["name"], _ratio(a["intensity"]), a["bound"], _ratio(b["intensity"]), b["bound"])
        for a, b in pairs
    ]
    yield from table(("", "training", "", "decoding", ""), bounds, left=(0, 2, 4), indent=2)


def _serving(serving: dict[str, Any], gpu: dict[str, Any]) -> Iterator[str]:
    sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in serving["weights"].items())
    yield f"Serving memory (weights: {sizes})"
    lengths = [f"{length:,}" for length in serving["contexts"]]
    rows = [
        (f"KV cache of {counted(row['batch'], 'text')}", *map(format_bytes, row["bytes"]))
        for row in serving["cache"]
    ]
    rows += [
        (f"most texts in parallel, weights in {name}", *(f"{count:,}" for count in most))
        for name, most in serving["most"].items()
    ]
    yield from table(("tokens per text", *lengths), rows, indent=2)
    yield f"  in parallel: within {format_bytes(serving['usable'])} of one {gpu['name']}"
    yield ""
    yield "KV cache per token, and most texts in parallel, by kind of attention (bf16)"
    shared = [
        (
            row["kind"] + (", this model" if row["own"] else ""),
            f"{row['bytes_per_token']:,} bytes",
            *(f"{count:,}" for count in row["most"]),
        )
        for row in serving["heads"]
    ]
    yield from table(("", "per token", *lengths), shared, indent=2)


def preset_lines(facts: Iterable[tuple[str, int, dict[str, str]]]) -> Iterator[str]:
    rows = [
        (
            name,
            _parameters(total),
            row["norm"] + (", parallel" if row["block"] == "parallel" else ""),
            row["position"],
            row["attention"],
            row["feed-forward"],
        )
        for name, total, row in facts
    ]
    head = ("name", "parameters", "norm", "position", "attention", "feed-forward")
    yield from table(head, rows, left=(0, 2, 3, 4, 5), indent=2)


def _ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _parameters(value: int) -> str:
    return format_scaled(value).replace("G", "B")
