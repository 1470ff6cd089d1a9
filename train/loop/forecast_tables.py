"""What a run would take, as tables of text: the figures of ``forecast``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llmcurate.base.disk.units import counted, format_bytes, format_duration, format_scaled


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a title, and titles of the columns or none; ``left``: columns set to the left."""

    title: str
    rows: Sequence[tuple[str, ...]]
    head: tuple[str, ...] = ()
    left: tuple[int, ...] = (0,)


def forecast_tables(model: str, figures: dict[str, Any]) -> Iterator[Table]:
    """``model``: the name of the preset, or the folder."""
    yield _run(model, figures)
    yield _memory(figures["memory"], figures["processes"])
    yield _gpus(figures)


def table_lines(table: Table) -> Iterator[str]:
    """A table in columns, with an empty line before it."""
    grid = [table.head, *table.rows] if table.head else table.rows
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    yield ""
    yield table.title
    for row in grid:
        cells = [
            cell.ljust(width) if column in table.left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield ("  " + "  ".join(cells)).rstrip()


def _run(model: str, figures: dict[str, Any]) -> Table:
    data, ratio = figures["data"], figures["positions_per_parameter"]
    rows = []
    for stage in data["stages"]:
        shape = f"{stage['rows']:,} x {counted(stage['context'], 'token')}"
        rows.append((stage["name"], f"{counted(stage['steps'], 'step')} of {shape}"))
    rows.append(("tokens", f"{figures['positions']:,}, {ratio:.3g} a parameter"))
    for name, source in data["sources"].items():
        again = source["repeated_tokens"]
        of = f"{source['epochs']:.2f} epochs of {counted(source['unique_tokens'], 'token')}"
        rows.append((name, of + (f", {again:,} of them again" if again else "")))
    if figures["done"]:
        rows.append(("done", f"{counted(figures['done'], 'step')}; the rest is to come"))
    rows.append(("operations", f"{format_scaled(figures['flops'])}FLOP"))
    title = f"{model}: {figures['parameters']['total']:,} parameters"
    return Table(title=title, rows=rows, left=(0, 1))


def _memory(memory: list[dict[str, Any]], processes: int) -> Table:
    """Of one process, on each kind of device."""
    names = {"cpu": "CPU", "cuda": "GPU"}
    return Table(
        title="Memory" + (f" of each of {processes:,} processes" if processes > 1 else ""),
        head=("", *(f"{names[m['device']]}, {m['precision']}" for m in memory)),
        rows=[
            (kind, *(format_bytes(m[kind]) for m in memory))
            for kind in ("weights", "gradients", "optimizer", "activations", "peak")
        ],
    )


def _gpus(figures: dict[str, Any]) -> Table:
    """How long the operations take, and whether the memory is enough."""
    rows = []
    for gpu in figures["gpus"]:
        seconds = gpu["seconds"]  # None: in fp32, for which no peak is known
        time = "not known in fp32" if seconds is None else format_duration(seconds)
        fits = "fits" if gpu["fits"] else "does not fit"
        rows.append((gpu["name"], time, f"{fits} in {format_bytes(gpu['memory'])}"))
    return Table(
        title=(
            f"Time on {counted(figures['processes'], 'GPU')} at {100 * figures['mfu']:.0f} % of the"
            " peak in bf16, without evaluations and checkpoints"
        ),
        rows=rows,
        left=(0, 2),
    )
