"""Memory of `llmcurate filter c4` on files that are made to take all of it.

    python benchmarks/bench_memory.py [CASE ...] [--folder DIR]

The files are made on the fly and removed; each is one partition. Exit status 1 unless every worker
stays below 1 GiB and every document and every damaged place is counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import pieces, watched

LIMIT_MIB = 1024
TEXT = "The sea is wide and the hills are high. " * 20


def long_line(path: Path) -> dict[str, int]:
    """2 GB of documents, one of them 1 GB long."""
    size = 1_000_000_000
    records = ({"id": f"d{i}", "text": text} for i, text in enumerate(pieces()))
    lines = [json.dumps(record).encode() + b"\n" for record in records]
    count = 1
    with path.open("wb") as file:
        for end in (size // 2, 2 * size):
            while file.tell() < end:
                file.writelines(lines)
                count += len(lines)
            if end < size:
                block = b"These are words of a line that never ends. " * 23_256
                file.write(b'{"id": "long", "text": "')
                for _ in range(size // len(block)):
                    file.write(block)
                file.write(b'"}\n')
    return {"read": count, "read.line_too_long": 1}


def wide_column(path: Path) -> dict[str, int]:
    """60 lines with a column of 40 MB that nobody asked for."""
    block = b"x" * 40_000_000
    with path.open("wb") as file:
        for i in range(60):
            file.write(b'{"id": "d%d", "text": "%b", "html": "' % (i, TEXT.encode()))
            file.write(block)
            file.write(b'"}\n')
    return {"read": 60, "left_out": 60}


def pages(count: int = 900, size: int = 400_000) -> Iterator[dict[str, Any]]:
    """Documents with HTML beside the text."""
    for i in range(count):
        yield {"id": f"d{i}", "text": f"{TEXT}{i}", "html": f"<p>word{i}</p>" * (size // 14)}


def html_lines(path: Path) -> dict[str, int]:
    """900 lines with 400 kB of HTML beside the text."""
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in pages())
    return {"read": 900, "left_out": 0}


def html_parquet(path: Path) -> dict[str, int]:
    """The same as parquet, all of it in one page."""
    pq.write_table(pa.Table.from_pylist(list(pages())), path, use_dictionary=False)
    return {"read": 900, "left_out": 0}


def html_dictionary(path: Path) -> dict[str, int]:
    """The same in the dictionary of a column, which Arrow holds twice."""
    pq.write_table(pa.Table.from_pylist(list(pages())), path)
    return {"read": 900, "left_out": 900}


def bad_lines(path: Path) -> dict[str, int]:
    """3,000,000 lines that are no JSON."""
    with path.open("wb") as file:
        file.write(b'{"text": "one"}\n')
        file.writelines(b"{bad %d\n" % i for i in range(3_000_000))
    return {"read": 1, "corrupt": 3_000_000}


def repeated_value(path: Path) -> dict[str, int]:
    """2 kB: a value of 2.4 MB in a dictionary, of which each of 1,000 rows is made."""
    table = pa.table({"text": [TEXT] * 1000, "html": ["a" * 2_400_000] * 1000})
    pq.write_table(table, path, compression="zstd", dictionary_pagesize_limit=1 << 30)
    return {"read": 1000, "left_out": 0}


def large_page(path: Path) -> dict[str, int]:
    """2 kB: a page that unpacks to 1 GB."""
    table = pa.table({"text": [TEXT], "html": ["a" * 1_000_000_000]})
    pq.write_table(table, path, compression="brotli", use_dictionary=False, write_statistics=False)
    return {"read": 1, "left_out": 1}


CASES: dict[str, tuple[str, Callable[[Path], dict[str, int]]]] = {
    "long_line": ("jsonl", long_line),
    "wide_column": ("jsonl", wide_column),
    "html_lines": ("jsonl", html_lines),
    "html_parquet": ("parquet", html_parquet),
    "html_dictionary": ("parquet", html_dictionary),
    "bad_lines": ("jsonl", bad_lines),
    "repeated_value": ("parquet", repeated_value),
    "large_page": ("parquet", large_page),
}


def measure(name: str, folder: str | None) -> bool:
    """Prints a line; whether memory and counts are as they should be."""
    kind, make = CASES[name]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source, out = Path(scratch, f"in.{kind}"), Path(scratch, "out")
        expected = make(source)
        size = source.stat().st_size
        command = [sys.executable, "-m", "curate.cli.app", "filter", "c4", str(source)]
        options = ["--workers", "1", "--quiet", "--set", "read.partition_bytes=4000000000"]
        done = watched([*command, "-o", str(out), *options])
        if done.status:
            sys.exit(done.output)
        totals = json.loads((out / "run.json").read_text())["totals"]
    counts = {k: totals["by_rule"].get(k, 0) if "." in k else totals[k] for k in expected}
    good = done.workers_mib < LIMIT_MIB and counts == expected
    print(
        f"{name:16} {size / 1e6:8,.3f} MB {done.seconds:5.0f} s,"
        f" worker {done.workers_mib:5.0f} MiB, any process {done.peak_mib:5.0f} MiB, {counts}",
        "" if good else f"is not {expected}",
        flush=True,
    )
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--folder", help="where to put the files (3 GB)")
    options = parser.parse_args()
    results = [measure(name, options.folder) for name in options.cases or CASES]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
