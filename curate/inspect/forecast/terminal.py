"""A forecast as a table for the terminal: a row a stage, and below it its steps."""

from __future__ import annotations

from curate.disk.units import format_bytes, format_duration, format_scaled
from curate.inspect.forecast.forecast import Forecast, StageForecast

NONE = "?"
COLUMNS = ("documents", "read", "written", "CPU hours", "RAM", "objects", "wall", "USD")
WIDTHS = (10, 9, 9, 10, 9, 9, 9, 9)


def text(result: Forecast) -> str:
    """The forecast as lines."""
    prices, total = result.prices, result.total
    wide = max(28, *(len(_title(s)) for s in result.stages))
    lines = [
        f"forecast for {format_bytes(result.bytes)} of input, {_count(result.documents)} documents,"
        f" {result.partitions:,} partitions, {result.workers:,} workers; figures of"
        f" {result.source}",
        _row("", list(COLUMNS), wide),
    ]
    for stage in result.stages:
        lines.append(_row(_title(stage), _cells(stage), wide))
        for step in stage.steps if len(stage.steps) > 1 else ():
            line = _row(f"  {step.label}", ["", "", "", _hours(step.cpu)], wide)
            if step.cpu and step.documents:
                line += f"  {step.cpu / step.documents * 1e3:.3g} ms a document"
            lines.append(line)
    cells = [
        "",
        "",
        format_bytes(total("bytes_out")),
        _hours(total("cpu")),
        format_bytes(total("peak_bytes")),
    ]
    cells += [_count(total("objects")), _clock(total("wall")), _money(total("cost"))]
    lines.append(_row("total", cells, wide))
    lines += [f"  {line}" for line in result.missing]
    lines += [f"  note: {line}" for line in result.notes]
    lines.append(
        f"  prices in USD: {prices.cpu_hour:g} a CPU hour; 1,000 writes {prices.put:g}, reads"
        f" {prices.get:g}; {prices.gb_month:g} a GB and month, {prices.months:g} months (--price);"
        f" {_count(total('gets'))} reads at least"
    )
    return "\n".join(lines)


def _hours(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    value = seconds / 3600
    return "<0.001" if 0 < value < 0.001 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _money(value: float | None) -> str:
    if value is None:
        return NONE
    return "<0.01" if 0 < value < 0.01 else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _count(number: float) -> str:
    return format_scaled(number).strip()


def _size(value: float | None) -> str:
    return "" if value is None else format_bytes(value)


def _clock(seconds: float | None) -> str:
    return NONE if seconds is None else format_duration(seconds)


def _title(stage: StageForecast) -> str:
    """`stage 00`, or what is done once."""
    if stage.peak_bytes is not None:
        return f"stage {stage.name[:2]}"
    return stage.name + (" (one process)" if stage.single else "")


def _cells(stage: StageForecast) -> list[str]:
    """The columns of a stage; blank where a column means nothing for it."""
    return [
        _count(stage.documents_in),
        _size(stage.bytes_in),
        _size(stage.bytes_out),
        _hours(stage.cpu),
        _size(stage.peak_bytes),
        _count(stage.objects) if stage.objects else "",
        _clock(stage.wall),
        _money(stage.cost),
    ]


def _row(name: str, cells: list[str], wide: int) -> str:
    columns = "".join(f"{c:>{w}}" for c, w in zip(cells, WIDTHS, strict=False))
    return f"  {name:<{wide}}{columns}".rstrip()
