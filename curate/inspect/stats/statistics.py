"""Statistics of any corpus: lengths, numeric columns, languages, domains, dates, sources.

The input is read once, like for a product without steps. What is measured of each document goes
to a temporary parquet file, from which DuckDB and the report's histograms count; so memory is
bounded by a batch, whatever the corpus.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.corpus.direct import DirectInput
from curate.disk.atomic import write_text
from curate.disk.database import database, literal
from curate.disk.parquet_writer import TableWriter, one_array
from curate.documents.documents import Documents
from curate.errors import UsageError
from curate.formats.inputs import InputPlan, plan_inputs
from curate.formats.reading import ReadSettings
from curate.inspect.report.bins import Range, edges_of, fill, numeric_columns, ranges
from curate.text.buffers import as_large_string
from curate.text.tables import segments

LENGTHS = ("characters", "words", "bytes")  # words: runs without white space
TOP = 20
SHARES = {"p01": 0.01, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99}
EXACT_ROWS = 10_000_000  # beyond, quantiles are approximate (t-digest): exact ones do not spill
# What would take a list of registries to know: a country's second level, as in bbc.co.uk.
SECOND = "ac|co|com|edu|go|gob|gouv|gov|gub|mil|ne|net|nom|or|org|sch"
_HOST = r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(?P<host>\[[^\]/]*\]|[^:/?#]+)"
_DOMAIN = rf"([^.]+\.(?:(?:{SECOND})\.[a-z][a-z]|[^.]+))$"
_NUMERIC_HOST = r"^[0-9.]+$|^\["


def _length(name: str) -> str:
    """The column of a length in the temporary file, beside columns of any name."""
    return f"text: {name}"


def measure(batch: pa.RecordBatch, numeric: Iterable[str]) -> pa.Table:
    """What is kept of each document: lengths, host, date, source, lang, numeric columns."""
    docs = Documents(pa.Table.from_batches([batch]))
    tables = segments(docs)
    words = np.diff(tables.words.lines[tables.lines.rows])
    size = np.diff(docs.buffers()[1])
    columns: dict[str, Any] = {
        _length("characters"): pa.array(tables.chars, pa.int64()),
        _length("words"): pa.array(words, pa.int64()),
        _length("bytes"): pa.array(size, pa.int64()),
        "host": hosts(one_array(docs.table["url"])),
    }
    for name in ("date", "source", "lang"):
        columns[name] = one_array(docs.table[name])
    for name in numeric:
        columns[name] = one_array(docs.table[name])
    return pa.table(columns)


def hosts(urls: pa.Array) -> pa.Array:
    """The host of each URL in lower case, without port and user; null where there is none."""
    found = pc.extract_regex(as_large_string(urls), _HOST)
    return pc.utf8_lower(pc.struct_field(found, "host")).cast(pa.large_string())


def gather(inputs: list[str], read: ReadSettings | None = None) -> dict[str, Any]:
    """The statistics of the inputs as JSON values; UsageError where no document has text."""
    read = read or ReadSettings()
    plan = plan_inputs(inputs, read.partition_bytes)
    reader = DirectInput(plan, read)
    with tempfile.TemporaryDirectory(prefix="llmcurate-stats-") as folder:
        path = Path(folder) / "measured.parquet"
        columns = _write(reader, path)
        tally = reader.tally
        if not tally["kept"]:
            raise UsageError(_no_text(plan))
        lengths = {_length(n): True for n in LENGTHS}
        with database(Path(folder) / "spill") as db:
            db.execute(f"CREATE VIEW docs AS SELECT * FROM read_parquet({literal(path)})")
            numbers = _numbers(db, path, lengths | columns)
            found = {
                "documents": tally["kept"],
                "text_bytes": tally["bytes_out"],
                "without_text": tally["rejected"],
                "skipped": tally["skipped"],
                "corrupt": tally["corrupt"],
                "notices": list(plan.notices),
                "files": len(plan.files),
                "lengths": {n: numbers[_length(n)] for n in LENGTHS},
                "columns": {n: numbers[n] for n in columns if n in numbers},
                **_labels(db),
            }
    return found


def write(found: dict[str, Any], inputs: list[str], out: Path) -> list[Path]:
    """OUT/stats.json and OUT/stats.html."""
    from curate.inspect.stats.page import render

    out.mkdir(parents=True, exist_ok=True)
    data = json.dumps({"inputs": inputs} | found, indent=1, ensure_ascii=False) + "\n"
    paths = [out / "stats.json", out / "stats.html"]
    for path, text in zip(paths, (data, render(found, inputs)), strict=True):
        write_text(path, text.encode("utf-8", "replace").decode("utf-8"))
    return paths


def _write(reader: DirectInput, path: Path) -> dict[str, bool]:
    """Writes what is measured; returns the numeric columns (name -> whole numbers)."""
    writer = TableWriter(path)
    numeric: dict[str, bool] | None = None
    done = False
    try:
        for batch in reader.batches(None):
            if numeric is None:
                taken = ("host", "date", "source", "lang", *map(_length, LENGTHS))
                numeric = numeric_columns(batch.schema, hidden=taken)
            writer.write(measure(batch, numeric))
        done = True
    finally:
        writer.close(failed=not done or numeric is None)
    return numeric or {}


def _no_text(plan: InputPlan) -> str:
    packed = any(f.format in ("archive", "html") for f in plan.files)
    if packed:
        return "the input holds web pages, not text: `llmcurate extract` makes text of them"
    return "no document of the input has text"


def _numbers(db: Any, path: Path, columns: dict[str, bool]) -> dict[str, dict[str, Any]]:
    """Range, mean, quantiles and histogram of each column that has a finite value."""
    known = {n: r for n, r in ranges([path], columns).items() if r.count}
    bins = {n: [edges_of(r)] for n, r in known.items()}
    fill([path], bins)
    return {n: _number(db, n, r) | {"histogram": bins[n][0].dump()} for n, r in known.items()}


def _number(db: Any, name: str, known: Range) -> dict[str, Any]:
    quoted = '"' + name.replace('"', '""') + '"'
    function = "quantile_disc" if known.count <= EXACT_ROWS else "approx_quantile"
    shares = list(SHARES.values())
    values = db.execute(
        f"SELECT {function}({quoted}::DOUBLE, {shares}) FROM docs WHERE isfinite({quoted}::DOUBLE)"
    ).fetchone()[0]
    return {
        "count": known.count,
        "least": known.least,
        **dict(zip(SHARES, values, strict=True)),
        "most": known.most,
        "mean": known.total / known.count,
    }


def _labels(db: Any) -> dict[str, Any]:
    """Documents and bytes by language, domain, source, and year or month."""
    size = f'"{_length("bytes")}"'
    domain = (
        f"CASE WHEN regexp_matches(host, '{_NUMERIC_HOST}') OR NOT contains(host, '.') THEN host"
        f" ELSE regexp_extract(host, '{_DOMAIN}', 1) END"
    )
    ((years,),) = db.execute("SELECT count(DISTINCT year(date)) FROM docs").fetchall()
    when = "strftime(date, '%Y')" if years > 2 else "strftime(date, '%Y-%m')"
    found: dict[str, Any] = {}
    for name, value, order in (
        ("languages", "lang", "n DESC, label"),
        ("domains", domain, "n DESC, label"),
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
        found[name] = {
            "distinct": distinct,
            "documents": documents,
            "top": [[label, n, size] for label, n, size in rows],
        }
    return found
