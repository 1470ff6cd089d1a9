"""What a training would take, as text: the figures of `train.loop.forecast`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from curate.disk.units import counted, format_bytes, format_duration, format_percent, format_scaled
from curate.terminal.tables import table


def forecast_lines(model: str, figures: dict[str, Any]) -> Iterator[str]:
    """model: the name of the preset, or the folder."""
    data, processes = figures["data"], figures["processes"]
    yield ""
    yield f"{model}: {figures['parameters']['total']:,} parameters"
    rows = []
    for stage in data["stages"]:
        shape = f"{stage['rows']:,} x {counted(stage['context'], 'token')}"
        rows.append((stage["name"], f"{counted(stage['steps'], 'step')} of {shape}"))
    ratio = figures["positions_per_parameter"]
    rows.append(("tokens", f"{figures['positions']:,}, {ratio:.3g} a parameter"))
    for name, source in data["sources"].items():
        again = source["repeated_tokens"]
        of = f"{source['epochs']:.2f} epochs of {counted(source['unique_tokens'], 'token')}"
        rows.append((name, of + (f", {again:,} of them again" if again else "")))
    if figures["done"]:
        rows.append(("done", f"{counted(figures['done'], 'step')}; the rest is to come"))
    rows.append(("operations", f"{format_scaled(figures['flops'])}FLOP"))
    yield from table((), rows, left=(0, 1), indent=2)
    yield from _memory(figures["memory"], processes)
    yield from _gpus(figures)


def _memory(memory: list[dict[str, Any]], processes: int) -> Iterator[str]:
    yield ""
    yield "Memory" + (f" of each of {counted(processes, 'process')}" if processes > 1 else "")
    names = {"cpu": "CPU", "cuda": "GPU"}
    head = ("", *(f"{names[m['device']]}, {m['precision']}" for m in memory))
    kinds = ("weights", "gradients", "optimizer", "activations", "peak")
    yield from table(head, [(k, *(format_bytes(m[k]) for m in memory)) for k in kinds], indent=2)


def _gpus(figures: dict[str, Any]) -> Iterator[str]:
    """How long the operations take, and whether the memory is enough."""
    count = counted(figures["processes"], "GPU")
    yield ""
    yield (
        f"Time on {count} at {format_percent(figures['mfu'], 0)} of the peak in bf16, "
        "without evaluations and checkpoints"
    )
    rows = []
    for gpu in figures["gpus"]:
        seconds = gpu["seconds"]  # None: in fp32, for which no peak is known
        time = "not known in fp32" if seconds is None else format_duration(seconds)
        fits = "fits" if gpu["fits"] else "does not fit"
        rows.append((gpu["name"], time, f"{fits} in {format_bytes(gpu['memory'])}"))
    yield from table((), rows, left=(0, 2), indent=2)
