"""Compute statistics of any corpus: lengths, numeric columns, languages, domains, dates, sources.

The input is read once. The measures of each document are written to a temporary parquet file.
Counts and histograms are made from this file, so memory does not grow with the corpus.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.corpus.direct_input import DirectInput
from curate.documents.documents import Documents
from curate.formats.inputs import empty_files
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import plan_reading
from curate.inspect.report.documents import HOST, Source, by_source, sql_domain
from curate.inspect.report.store import Histogram, Range, edges_of, fill, numeric_columns, ranges
from curate.inspect.results import Findings
from curate.text.buffers import as_large_string
from curate.text.tables import segments
from llmcurate.base.disk.database import literal, quoted, scratch_database
from llmcurate.base.disk.parquet_writer import TableWriter, one_array
from llmcurate.base.disk.units import counted, format_bytes, format_percent, format_scaled
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import table

LENGTHS = ("characters", "words", "bytes")  # words: runs without white space
TOP = 20
SHARES = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99]
EXACT_ROWS = (
    10_000_000  # above this, quantiles are approximate (t-digest): exact ones cannot spill to disk
)
# Widths and characters of the terminal output.
BAR = 24
LABEL = 30
SPARKS = 16
BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
ASCII = " .:-=+*%#"
TITLES = {"languages": "language", "domains": "domain", "sources": "source", "dates": "date"}
QUANTILES = {
    "least": "least", "p10": "10 %", "p50": "median", "p90": "90 %", "most": "most",
    "mean": "mean",
}  # fmt: skip


@dataclass(frozen=True)
class Number:
    """Statistics of a numeric column, over the documents that have a finite value."""

    count: int  # documents with a finite value
    least: float
    p01: float
    p10: float
    p25: float
    p50: float
    p75: float
    p90: float
    p99: float
    most: float
    mean: float
    histogram: Histogram


@dataclass(frozen=True)
class Labels:
    """Statistics of a column of labels, such as languages."""

    distinct: int  # number of distinct labels
    documents: int  # number of documents with a label
    top: list[tuple[str, int, int]]  # (label, documents, bytes), most frequent


@dataclass(frozen=True)
class Statistics(Findings):
    """The statistics of some inputs."""

    NAME = "stats"
    TEMPLATE = "stats.html"
    inputs: list[str]
    documents: int  # number of documents with text
    text_bytes: int
    without_text: int  # number of documents without text
    skipped: dict[str, int]  # type of record -> number of records without a document
    corrupt: int  # number of stretches that cannot be read
    bad_dates: int  # number of dates that cannot be read
    files_without_documents: int
    notices: list[str]
    files: int
    lengths: dict[str, Number]
    columns: dict[str, Number]
    languages: Labels
    domains: Labels
    sources: Labels
    dates: Labels
    freshness: list[Source]

    def text(self, encoding: str | None = None) -> str:
        utf = "utf" in (encoding or sys.stdout.encoding or "").lower()
        blocks = BLOCKS if utf else ASCII
        skipped, without = sum(self.skipped.values()), self.files_without_documents
        others = [
            f"{counted(self.without_text, 'document')} without text" if self.without_text else "",
            f"{counted(skipped, 'other record')} skipped" if skipped else "",
            f"{self.corrupt:,} corrupt" if self.corrupt else "",
            f"{counted(without, 'file')} without a document" if without else "",
            f"{counted(self.bad_dates, 'date')} that cannot be read" if self.bad_dates else "",
        ]
        size = f"{format_bytes(self.text_bytes)} of text"
        lines = [
            ", ".join(filter(None, [counted(self.documents, "document"), size, *others])),
            "",
        ]
        rows = [
            [
                _label(name),
                *(_figure(getattr(number, key)) for key in QUANTILES),
                _spark(number.histogram.counts.tolist(), blocks),
            ]
            for name, number in (*self.lengths.items(), *self.columns.items())
        ]
        lines += table(("a document has", *QUANTILES.values(), ""), rows, left=(0, 7))
        for group, title in TITLES.items():
            lines += _bars(title, getattr(self, group), self.documents, blocks[-1])
        if self.freshness:
            rows = [
                [
                    "all" if source.name is None else _label(source.name),
                    *(f"{n:,}" for n in (source.documents, source.dated)),
                    *(day or "-" for day in (source.oldest, source.median, source.newest)),
                    source.cutoff or "-",
                    f"{source.versions:,}",
                ]
                for source in self.freshness
            ]
            head = ("dates of", "documents", "dated", "oldest", "median", "newest", "cut-off")
            lines += ["", *table((*head, "same URL"), rows)]
        return "\n".join(lines)


def _length(name: str) -> str:
    return f"text: {name}"


def measure(batch: pa.RecordBatch, numeric: Iterable[str]) -> pa.Table:
    """Return a row per document: lengths, host, URL, date, source, lang and `numeric` columns."""
    docs = Documents(pa.Table.from_batches([batch]))
    tables = segments(docs)
    words = np.diff(tables.words.lines[tables.lines.rows])
    size = np.diff(docs.buffers()[1])
    columns: dict[str, pa.Array] = {
        _length("characters"): pa.array(tables.chars, pa.int64()),
        _length("words"): pa.array(words, pa.int64()),
        _length("bytes"): pa.array(size, pa.int64()),
        "host": hosts(one_array(docs.table["url"])),
    }
    for name in ("date", "source", "lang", "url"):
        columns[name] = one_array(docs.table[name])
    for name in numeric:
        columns[name] = one_array(docs.table[name])
    return pa.table(columns)


def hosts(urls: pa.Array) -> pa.Array:
    """Return each URL's host in lower case, without port and user, or null if it has none."""
    matches = pc.extract_regex(as_large_string(urls), HOST)
    return pc.utf8_lower(pc.struct_field(matches, "host")).cast(pa.large_string())


def gather(inputs: list[str], read: ReadSettings | None = None) -> Statistics:
    """Compute statistics of some inputs. Raises UsageError if the input holds web pages instead of
    text, and RunFailed if no document has text."""
    read = read or ReadSettings()
    plan = plan_reading(inputs, read)
    reader = DirectInput(plan, read)
    with tempfile.TemporaryDirectory(prefix="llmcurate-stats-") as folder:
        path = Path(folder) / "measured.parquet"
        columns = _write(reader, path)
        tally = reader.tally
        if not tally["kept"]:
            if any(file.holds_pages for file in plan.files):
                raise UsageError(
                    "the input holds web pages, not text: run `llmcurate extract` on it first"
                )
            empty = empty_files(tally["without_documents"])
            raise RunFailed("; ".join(["no document of the input has text", *empty]))
        lengths = {_length(n): True for n in LENGTHS}
        with scratch_database(Path(folder) / "spill") as db:
            db.execute(f"CREATE VIEW docs AS SELECT * FROM read_parquet({literal(path)})")
            found = ranges([path], lengths | columns).items()
            spans = {name: span for name, span in found if span.count}
            bins = {name: [edges_of(span)] for name, span in spans.items()}
            fill([path], bins)
            numbers = {n: _number(db, n, span, bins[n][0]) for n, span in spans.items()}
            languages, domains, sources, dates = _labels(db)
            return Statistics(
                inputs,
                tally["kept"],
                tally["bytes_out"],
                tally["rejected"],
                tally["skipped"],
                tally["corrupt"],
                tally["bad_dates"],
                tally["without_documents"]["files"],
                [*plan.notices, *empty_files(tally["without_documents"])],
                len(plan.files),
                {n: numbers[_length(n)] for n in LENGTHS},
                {n: numbers[n] for n in columns if n in numbers},
                languages,
                domains,
                sources,
                dates,
                by_source(db, "docs"),
            )


def _write(reader: DirectInput, path: Path) -> dict[str, bool]:
    writer = TableWriter(path)
    numeric: dict[str, bool] | None = None
    done = False
    try:
        for batch in reader.batches(None):
            if numeric is None:
                taken = ("host", "date", "source", "lang", "url", *map(_length, LENGTHS))
                numeric = numeric_columns(batch.schema, hidden=taken)
            writer.write(measure(batch, numeric))
        done = True
    finally:
        writer.close(failed=not done or numeric is None)
    return numeric or {}


def _number(db: Any, name: str, span: Range, histogram: Histogram) -> Number:
    column = quoted(name)
    function = "quantile_disc" if span.count <= EXACT_ROWS else "approx_quantile"
    values = db.execute(
        f"SELECT {function}({column}::DOUBLE, {SHARES}) FROM docs WHERE isfinite({column}::DOUBLE)"
    ).fetchone()[0]
    mean = span.total / span.count
    p01, p10, p25, p50, p75, p90, p99 = values
    ends = (span.most, mean, histogram)
    return Number(span.count, span.least, p01, p10, p25, p50, p75, p90, p99, *ends)


def _labels(db: Any) -> Iterator[Labels]:
    size = f'"{_length("bytes")}"'
    ((years,),) = db.execute("SELECT count(DISTINCT year(date)) FROM docs").fetchall()
    when = "strftime(date, '%Y')" if years > 2 else "strftime(date, '%Y-%m')"
    for name, value, order in (
        ("languages", "lang", "n DESC, label"),
        ("domains", sql_domain("host"), "n DESC, label"),
        ("sources", "source", "n DESC, label"),
        ("dates", when, "label"),
    ):
        most = 40 if name == "dates" else TOP
        rows = db.execute(
            f"""SELECT label, count(*) AS n, sum(size)::BIGINT AS size
            FROM (SELECT {value} AS label, {size} AS size FROM docs) WHERE label IS NOT NULL
            GROUP BY label ORDER BY {order} LIMIT {most}"""
        ).fetchall()
        ((distinct, documents),) = db.execute(
            f"SELECT count(DISTINCT {value}), count({value}) FROM docs"
        ).fetchall()
        yield Labels(distinct, documents, rows)


def _bars(title: str, group: Labels, documents: int, block: str) -> list[str]:
    labels = group.top[:TOP]
    if not labels:
        return []
    most = max(n for _, n, _ in labels)
    more = group.distinct > len(labels)
    rows = [
        [
            _label(label, LABEL),
            block * max(1, round(BAR * n / most)),
            f"{n:,}",
            format_percent(n / documents),
            format_bytes(size),
        ]
        for label, n, size in labels
    ]
    if without := documents - group.documents:
        rows.append(["(none)", "", f"{without:,}", "", ""])
    head = title + (f" ({group.distinct:,} in all)" if more else "")
    return ["", head, *table((), rows, left=(0, 1), indent=2)]


def _label(name: str, most: int = LABEL + 10) -> str:
    label = plain(name, most).replace("\n", " ").replace("\t", " ")
    return label if len(label) <= most else label[: most - 1] + "\u2026"


def _figure(value: float) -> str:
    if abs(value) >= 1e4:
        return format_scaled(value)
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.0e}" if abs(value) < 0.001 else f"{value:.3g}"


def _spark(counts: list[int], blocks: str) -> str:
    groups = min(SPARKS, len(counts))
    cuts = [i * len(counts) // groups for i in range(groups + 1)]
    sums = [sum(counts[a:b]) for a, b in pairwise(cuts)]
    most = max(sums) or 1
    top = len(blocks) - 1
    return "".join(blocks[min(top, max(n > 0, round(top * (n / most) ** 0.5)))] for n in sums)
