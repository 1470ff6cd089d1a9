"""A forecast as a table for the terminal: a row a stage, and below it its steps."""

from __future__ import annotations

from curate.disk.units import format_bytes, format_duration, format_scaled
from curate.inspect.forecast.forecast import Forecast, StageForecast
from curate.terminal.tables import table

NONE = "?"
COLUMNS = ("documents", "read", "written", "CPU hours", "RAM", "objects", "wall", "USD")


def text(result: Forecast) -> str:
    """The forecast as lines."""
    prices, total = result.prices, result.total
    rows = []
    for stage in result.stages:
        rows.append([_title(stage), *_cells(stage), ""])
        for step in stage.steps if len(stage.steps) > 1 else ():
            pace = ""
            if step.cpu and step.documents:
                pace = f"{step.cpu / step.documents * 1e3:.3g}"
            rows.append([f"  {step.label}", *[""] * 3, _hours(step.cpu), *[""] * 4, pace])
    totals = ["", "", format_bytes(total("bytes_out")), _hours(total("cpu"))]
    totals += [format_bytes(total("peak_bytes")), _count(total("objects"))]
    rows.append(["total", *totals, _clock(total("wall")), _money(total("cost")), ""])
    lines = [
        f"forecast for {format_bytes(result.bytes)} of input, {_count(result.documents)} documents,"
        f" {result.partitions:,} partitions, {result.workers:,} workers; figures of"
        f" {result.source}",
        *table(("", *COLUMNS, "CPU ms a document"), rows, indent=2),
    ]
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
