"""The page's training: curves by step, the figures of the run, the steps that changed nothing, a
sample."""

from __future__ import annotations

from typing import Any

from curate.inspect.report.training_data import tables
from curate.pages import charts
from curate.pages.html import count, quote, shown

SAMPLE = 800  # characters
# Settings that say what was done; all others are in the settings chapter.
SETTINGS = ("objective", "optimizer", "lr", "schedule", "rows", "context", "precision", "ema")


def training(product: dict[str, Any]) -> str:
    """product: a record of the model's building (summary, and a line of metrics a step)."""
    metrics, summary = product.get("metrics", []), product["summary"]
    parts = [_loss(metrics), _figures(summary)]
    for key, what in (
        ("lr", "learning rate"),
        ("grad_norm", "norm of the gradient before clipping,"),
    ):
        points = _points(metrics, key)
        if len(points) > 1:
            parts.append(_chart([points], f"{what} by step"))
    parts.append(_skipped(metrics, summary))
    parts.append(tables(summary))
    if summary.get("sample"):
        parts.append(f"<p class=about>A sample of the model:</p>{quote(summary['sample'], SAMPLE)}")
    return "".join(parts)


def _points(metrics: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(m["step"], m[key]) for m in metrics if _known(m.get(key))]


def _loss(metrics: list[dict[str, Any]]) -> str:
    loss = _points(metrics, "loss")
    scored = [(m["step"], m["held_out"]) for m in metrics if m.get("held_out")]
    held = [(step, scores["loss"]) for step, scores in scored if _known(scores.get("loss"))]
    if len(loss) < 2:
        return ""
    said = f"loss (nats a token) by step: {loss[0][1]:.2f} to {loss[-1][1]:.2f}"
    if held:
        said += f"; dots: on documents held out of training, {held[-1][1]:.2f} at the end"
    return _chart([loss, *([held] if held else [])], "training loss by step", said)


def _chart(lines: list[list[tuple[float, float]]], label: str, said: str = "") -> str:
    drawn = charts.curve(lines, label, "steps")
    return f"<figure>{drawn}<figcaption>{said or label}</figcaption></figure>"


def _figures(summary: dict[str, Any]) -> str:
    settings = summary.get("plan", {}).get("train", {})
    pairs = [(name.replace("_", " "), settings[name]) for name in SETTINGS if settings.get(name)]
    timing = summary.get("timing", {})
    for name, unit in (("tokens_per_second", "tokens"), ("flops_per_second", "FLOP")):
        if _known(timing.get(name)):
            value = timing[name]
            pairs.append((f"{unit} a second", count(value) if value < 1e7 else f"{value:.3g}"))
    if _known(timing.get("mfu")):
        pairs.append(("of the GPU's peak (MFU)", f"{100 * timing['mfu']:.1f} %"))
    if timing.get("processes", 1) > 1:
        pairs.append(("processes", timing["processes"]))
    if summary.get("best_checkpoint"):
        pairs.append(("best checkpoint by held-out loss", summary["best_checkpoint"]))
    cells = "".join(f"<dt>{shown(name)}</dt><dd>{shown(value)}</dd>" for name, value in pairs)
    return f"<dl>{cells}</dl>" if cells else ""


def _skipped(metrics: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Spikes, and what was passed over for them."""
    number = summary.get("skipped_steps", 0)
    if not number:
        return ""
    items = []
    for line in metrics:
        if "skipped" in line:
            ids = line.get("documents", [])
            names = f" Documents: {shown(', '.join(ids))}." if ids else ""
            items.append(f"<li>step {count(line['step'])}: {shown(line['skipped'])}.{names}</li>")
    return f"<p class=note>{count(number)} steps changed no weight:</p><ul>{''.join(items)}</ul>"


def _known(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == value and abs(value) != float("inf")
