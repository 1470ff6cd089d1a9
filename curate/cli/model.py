"""`llmcurate model`: what models are made of and cost, before anything is trained."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import Json, group
from curate.disk.units import format_bytes, format_percent, format_scaled
from curate.errors import UsageError
from curate.terminal.tables import table

if TYPE_CHECKING:
    from train.model.config import ModelConfig

model_app = group("model", "Show what models are made of and cost.")


@model_app.command("show")
def model_show(
    model: Annotated[
        str, typer.Argument(help="A preset, or a folder that a model was trained into.")
    ],
    gpu: Annotated[
        str, typer.Option(help="GPU to plan for: H200, H100, A100 80GB, L40S, RTX 4090, ...")
    ] = "H200",
    rows: Annotated[int, typer.Option(help="Rows of a step on one GPU.", min=1)] = 8,
    context: Annotated[
        Optional[int],
        typer.Option(help="Tokens of a row. The default is the model's own, at most 4096.", min=1),
    ] = None,
    batch: Annotated[int, typer.Option(help="Texts decoded at once.", min=1)] = 1,
    vocab: Annotated[
        Optional[int], typer.Option(help="Size of another vocabulary than the model's.", min=1)
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Precision of training: bf16 (autocast) or fp32.")
    ] = "bf16",
    optimizer: Annotated[
        str, typer.Option(help="Optimiser of training: adamw, muon, lion or adafactor.")
    ] = "adamw",
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Keep no activations inside blocks.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a model: parts, costs, memory, bounds.

    Shows what it is made of, what training and decoding take, and what bounds each operation.

    \b
    Example:
    llmcurate model show llama3-8b --gpu H200 --context 8192
    """
    from curate.cli.training import needs_training

    if precision not in ("bf16", "fp32"):
        raise UsageError(f"--precision is {precision!r}: choose bf16 or fp32")
    with needs_training():
        from train.measure.describe import describe, find_gpu
        from train.measure.estimate import STATES
        from train.model.presets import OWN

        if optimizer not in STATES:
            raise UsageError(f"--optimizer is {optimizer!r}: choose one of {', '.join(STATES)}")
        config = _config(model, vocab)
        facts = describe(
            config,
            device=find_gpu(gpu),
            rows=rows,
            context=context or min(config.context, 4096),
            batch=batch,
            precision=precision,
            optimizer=optimizer,
            recompute=recompute,
            preset=None if Path(model).is_dir() or model in OWN else model,
        )
    print(json.dumps(facts) if as_json else "\n".join(model_lines(model, facts)))


def _config(model: str, vocab: int | None) -> ModelConfig:
    """A preset, or the configuration of a trained model."""
    import dataclasses

    from train.model.presets import PRESETS, preset
    from train.runs.checkpoint import load_plan, newest

    folder = Path(model)
    if model not in PRESETS and folder.is_dir():
        checkpoint = newest(folder / "checkpoints")
        if checkpoint is None:
            raise UsageError(f"{model}: no finished checkpoint in this folder")
        config = load_plan(checkpoint).model
        return dataclasses.replace(config, vocab=vocab or config.vocab)
    return preset(model, vocab=vocab)


@model_app.command("list")
def model_list(as_json: Json = False) -> None:
    """List the presets: names, parameters, architecture."""
    from curate.cli.training import needs_training

    with needs_training():
        from train.measure.accounting import parameters
        from train.measure.architecture import row
        from train.model.presets import PRESETS

        facts = []
        for name, build in PRESETS.items():
            config = build()
            facts.append((name, parameters(config), row(config)))
    if as_json:
        listed = [{"name": name, "parameters": total, **row} for name, total, row in facts]
        print(json.dumps(listed))
    else:
        print("\n".join(preset_lines(facts)))


def model_lines(name: str, facts: dict[str, Any]) -> Iterator[str]:
    """The facts of ``train.measure.describe.describe`` as lines of text."""
    config, counted, gpu = facts["config"], facts["parameters"], facts["gpu"]
    yield f"{name}: {_parameters(counted['total'])} parameters"
    yield ""
    sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "mlp_hidden", "vocab", "context")
    yield "  " + ", ".join(f"{key} {config[key]:,}" for key in sizes)
    yield from table((), [*facts["row"].items()], left=(0, 1), indent=2)
    yield ""
    yield "Parameters"
    shares = [
        (key, f"{value:,}", format_percent(value / counted["total"]))
        for key, value in counted.items()
        if value
    ]
    yield from table((), shares, indent=2)
    yield ""
    yield f"A token, at context {facts['context']:,}"
    costs = [
        ("training", f"{format_scaled(facts['training_flops_per_token'])}FLOP"),
        (
            f"at the peak of one {gpu['name']}",
            f"{facts['tokens_per_second_at_peak']:,.0f} tokens/s",
        ),
        ("keys and values, bf16", f"{facts['cache_bytes_per_token']:,} bytes"),
    ]
    yield from table((), costs, indent=2)
    yield ""
    memory = facts["memory"]
    setup = f"{facts['rows']} rows of {facts['context']:,} tokens, {facts['precision']}"
    setup += f", {facts['optimizer']}" + (", recompute" if facts["recompute"] else "")
    yield f"Training memory ({setup})"
    kinds = ("weights", "gradients", "optimizer", "activations", "peak")
    yield from table((), [(key, format_bytes(memory[key])) for key in kinds], indent=2)
    verdict = "fits" if facts["fits"] else "does not fit"
    yield f"  {verdict} in the {format_bytes(gpu['memory'])} of one {gpu['name']}"
    yield ""
    texts = "one text" if facts["batch"] == 1 else f"{facts['batch']} texts"
    yield (
        f"FLOPs a byte, one layer: below {gpu['ridge']:.0f} memory bounds the {gpu['name']} "
        f"(decoding {texts}: {format_bytes(facts['cache_bytes'])} of keys and values)"
    )
    pairs = zip(facts["training"], facts["decoding"], strict=True)
    bounds = [(a["name"], _ratio(a), a["bound"], _ratio(b), b["bound"]) for a, b in pairs]
    yield from table(("", "training", "", "decoding", ""), bounds, left=(0, 2, 4), indent=2)


def preset_lines(facts: Iterable[tuple[str, int, dict[str, str]]]) -> Iterator[str]:
    """A line a preset: name, parameters, what sets it apart."""
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


def _ratio(operation: dict[str, Any]) -> str:
    value = operation["intensity"]
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _parameters(value: int) -> str:
    return format_scaled(value).replace("G", "B")
