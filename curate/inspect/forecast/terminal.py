"""A forecast for people: a table by stage, the steps under it, and what is not known."""

from __future__ import annotations

from curate.disk.units import format_bytes, format_scaled
from curate.inspect.forecast.forecast import Forecast, StageForecast

NONE = "?"
COLUMNS = (
    "documents", "text in", "read", "written", "CPU hours", "RAM", "shuffled", "objects", "wall",
    "USD",
)  # fmt: skip
WIDTHS = (10, 9, 9, 9, 10, 9, 9, 8, 9, 9)


def hours(seconds: float | None) -> str:
    """CPU time in hours, to three figures."""
    if seconds is None:
        return NONE
    value = seconds / 3600
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def clock(seconds: float | None) -> str:
    """Time in the largest fitting unit."""
    if seconds is None:
        return NONE
    for size, unit in ((86400 * 2, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / (86400 if unit == 'd' else size):.1f} {unit}"
    return f"{seconds:.1f} s"


def money(value: float | None) -> str:
    """USD."""
    if value is None:
        return NONE
    if 0 < value < 0.01:
        return "<0.01"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _size(value: float | None) -> str:
    return NONE if value is None else format_bytes(value)


def cells(stage: StageForecast) -> list[str]:
    """The columns of a stage; blank where a column means nothing for it."""
    map_ = not stage.single and stage.text_in > 0
    return [
        format_scaled(stage.documents_in).strip(),
        _size(stage.text_in) if map_ else "",
        _size(stage.bytes_in) if map_ or stage.shuffled is not None else "",
        _size(stage.bytes_out) if map_ or stage.shuffled is not None else "",
        hours(stage.cpu),
        _size(stage.peak_bytes) if map_ else "",
        _size(stage.shuffled) if stage.shuffled is not None else "",
        format_scaled(stage.objects).strip() if stage.objects else "",
        clock(stage.wall),
        money(stage.cost),
    ]


def title(stage: StageForecast) -> str:
    """`stage 00`, or what one process does."""
    if stage.single or not stage.text_in:
        return stage.name + (" (one process)" if stage.single else "")
    return f"stage {stage.name[:2]}"


def total_cells(found: Forecast) -> list[str]:
    """The last row."""
    return [
        "", "", "", format_bytes(found.total("bytes_out")), hours(found.total("cpu")),
        format_bytes(found.total("peak_bytes")), format_bytes(found.total("shuffled")),
        format_scaled(found.total("objects")).strip(), clock(found.total("wall")),
        money(found.total("cost")),
    ]  # fmt: skip


def text(found: Forecast) -> str:
    """The forecast as lines."""
    prices = found.prices
    wide = max(len("total"), *(len(title(s)) for s in found.stages), 28)
    lines = [
        f"forecast for {format_bytes(found.bytes)} of input,"
        f" {format_scaled(found.documents).strip()} documents,"
        f" {found.partitions:,} partitions, {found.workers:,} workers; figures of {found.source}",
        "  " + " " * wide + "".join(f"{c:>{w}}" for c, w in zip(COLUMNS, WIDTHS, strict=True)),
    ]
    for stage in found.stages:
        lines.append(_row(title(stage), cells(stage), wide))
        if len(stage.steps) > 1:
            lines += [_step(line.label, line.cpu, line.rate, wide) for line in stage.steps]
    lines.append(_row("total", total_cells(found), wide))
    lines += [f"  {line}" for line in found.missing]
    lines += [f"  note: {line}" for line in found.notes]
    puts, gets = (format_scaled(found.total(n)).strip() for n in ("objects", "gets"))
    lines.append(f"  requests to a store: {puts} writes, {gets} reads, at least")
    lines.append(
        f"  prices in USD: {prices.cpu_hour:g} a CPU hour; 1,000 writes {prices.put:g}, reads"
        f" {prices.get:g}; {prices.gb_month:g} a GB and month, {prices.months:g} months (--price)"
    )
    return "\n".join(lines)


def _row(name: str, row: list[str], wide: int) -> str:
    columns = "".join(f"{c:>{w}}" for c, w in zip(row, WIDTHS, strict=True))
    return f"  {name:<{wide}}{columns}".rstrip()


def _step(label: str, cpu: float | None, rate: float | None, wide: int) -> str:
    name = f"  {label:<{wide - 2}}"
    pad = " " * sum(WIDTHS[:4])
    speed = f"  {rate / 1e6:,.1f} MB/s of CPU" if rate else ""
    return f"  {name}{pad}{hours(cpu):>{WIDTHS[4]}}{speed}"
