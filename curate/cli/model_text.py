"""`llmcurate model show` and `model list` as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def show(name: str, facts: dict[str, Any]) -> Iterator[str]:
    """What ``train.measure.describe.describe`` found, for a reader."""
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
    how = f"{facts['rows']} rows of {facts['context']:,} tokens, {facts['precision']}"
    how += f", {facts['optimizer']}" + (", recompute" if facts["recompute"] else "")
    yield f"Training memory ({how})"
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


def presets(facts: Iterable[tuple[str, int, dict[str, str]]]) -> Iterator[str]:
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
            cell.rjust(width) if place and cell[:1].isdigit() else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=False))
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
