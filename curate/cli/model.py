"""`llmcurate model`: what models are made of and cost, before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.cli.options import Json, group
from curate.cli.settings import command
from curate.errors import UsageError

if TYPE_CHECKING:
    from train.model.config import ModelConfig

model_app = group("model", "Show what models are made of and cost.")


@command(model_app, "ModelShow", "show")
def model_show(
    model: Annotated[
        str, typer.Argument(help="A preset, or a folder that a model was trained into.")
    ],
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Show a model: parts, costs, memory, bounds.

    Shows what it is made of, what training and decoding take, and what bounds each operation.

    \b
    Example:
    llmcurate model show llama3-8b --gpu H200 --context 8192
    """
    from curate.cli.command_settings import ModelShow
    from curate.cli.training import needs_training

    chosen = ModelShow.of(settings)
    with needs_training():
        from train.measure.describe import describe, find_gpu
        from train.measure.estimate import STATES
        from train.model.presets import OWN

        if chosen.optimizer not in STATES:
            raise UsageError(
                f"--optimizer is {chosen.optimizer!r}: choose one of {', '.join(STATES)}"
            )
        config = _config(model, chosen.vocab)
        facts = describe(
            config,
            device=find_gpu(chosen.gpu),
            rows=chosen.rows,
            context=chosen.context or min(config.context, 4096),
            batch=chosen.batch,
            precision=chosen.precision,
            optimizer=chosen.optimizer,
            recompute=chosen.recompute,
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
    yield from _rows([(key, value) for key, value in facts["row"].items()])
    yield ""
    yield "Parameters"
    yield from _rows(
        [
            (key, f"{value:,}", f"{100 * value / counted['total']:.1f} %")
            for key, value in counted.items()
            if value
        ]
    )
    yield ""
    yield f"A token, at context {facts['context']:,}"
    yield from _rows(
        [
            ("training", f"{_count(facts['training_flops_per_token'])}FLOP"),
            (
                f"at the peak of one {gpu['name']}",
                f"{facts['tokens_per_second_at_peak']:,.0f} tokens/s",
            ),
            ("keys and values, bf16", f"{facts['cache_bytes_per_token']:,} bytes"),
        ]
    )
    yield ""
    memory = facts["memory"]
    setup = f"{facts['rows']} rows of {facts['context']:,} tokens, {facts['precision']}"
    setup += f", {facts['optimizer']}" + (", recompute" if facts["recompute"] else "")
    yield f"Training memory ({setup})"
    kinds = ("weights", "gradients", "optimizer", "activations", "peak")
    yield from _rows([(key, _bytes(memory[key])) for key in kinds])
    verdict = "fits" if facts["fits"] else "does not fit"
    yield f"  {verdict} in the {_bytes(gpu['memory'])} of one {gpu['name']}"
    yield ""
    texts = "one text" if facts["batch"] == 1 else f"{facts['batch']} texts"
    yield (
        f"FLOPs a byte, one layer: below {gpu['ridge']:.0f} memory bounds the {gpu['name']} "
        f"(decoding {texts}: {_bytes(facts['cache_bytes'])} of keys and values)"
    )
    pairs = zip(facts["training"], facts["decoding"], strict=True)
    yield from _rows(
        [("", "training", "", "decoding", "")]
        + [(a["name"], _ratio(a), a["bound"], _ratio(b), b["bound"]) for a, b in pairs]
    )


def preset_lines(facts: Iterable[tuple[str, int, dict[str, str]]]) -> Iterator[str]:
    """A line a preset: name, parameters, what sets it apart."""
    yield from _rows(
        [("name", "parameters", "norm", "position", "attention", "feed-forward")]
        + [
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
    )


def _rows(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Columns as wide as their widest cell; numbers to the right, past the first."""
    count = max(map(len, rows))
    widths = [max((len(row[i]) for row in rows if i < len(row)), default=0) for i in range(count)]
    for row in rows:
        cells = [
            cell.rjust(width) if column and cell[:1].isdigit() else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        yield ("  " + "  ".join(cells)).rstrip()


def _ratio(operation: dict[str, Any]) -> str:
    value = operation["intensity"]
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _parameters(value: int) -> str:
    return _count(value).replace("G", "B")


def _count(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:g} "


def _bytes(value: float) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return (
                f"{value / size:,.2f} {unit}"
                if value < 100 * size
                else f"{value / size:,.0f} {unit}"
            )
    return f"{value:.0f} bytes"
