"""Damaged parquet, JSON lines and CSV: rows, named damage, or one line that names the file."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given

from tests.fuzz.archives import read
from tests.fuzz.mutations import FUZZ, SEEDS, damaged, damaged_tree, outcome

ROWS: list[dict[str, Any]] = [
    {
        "id": f"row-{n}",
        "text": f"The {n} mills, and the ภาษาไทย beside them.\n" * (n % 5),
        "url": f"https://example.org/{n}",
        "date": f"2024-0{n % 9 + 1}-11T10:00:0{n % 9}Z",
        "score": n / 7,
        "tags": ["a", "b"][: n % 3],
        "more": {"n": n, "deep": [{"x": None}]},
    }
    for n in range(20)
]


def _parquet(**how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), out, row_group_size=8, **how)
    return out.getvalue()


def _lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(
        "utf-8", "replace"
    )


def _csv() -> bytes:
    rows = (f'{r["id"]},"{r["text"]}",{r["url"]},{r["score"]}\r\n' for r in ROWS)
    return ("id,text,url,score\r\n" + "".join(rows)).encode()


FILES: dict[str, Callable[[int], bytes]] = {
    "plain.parquet": lambda seed: damaged(_parquet(compression="none"), seed),
    "snappy.parquet": lambda seed: damaged(_parquet(), seed),
    "zstd.parquet": lambda seed: damaged(
        _parquet(compression="zstd", use_dictionary=False, data_page_version="2.0"), seed
    ),
    "a.jsonl": lambda seed: damaged(_lines(ROWS), seed),
    "trees.jsonl": lambda seed: _lines(damaged_tree(ROWS, seed) or []),
    "a.json.gz": lambda seed: gzip.compress(damaged(_lines(ROWS), seed), mtime=0),
    "a.csv": lambda seed: damaged(_csv(), seed),
    "a.tsv": lambda seed: damaged(_csv().replace(b",", b"\t"), seed),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.mark.parametrize("name", FILES)
@FUZZ
@example(seed=1454)  # of plain.parquet: a codec that is none, at which Arrow aborted
@given(seed=SEEDS)
def test_a_damaged_table_is_rows_and_named_damage(folder: Path, name: str, seed: int) -> None:
    path = folder / name
    path.write_bytes(FILES[name](seed))
    result = outcome(lambda: read(path, max_record_bytes=1 << 20))
    assert not isinstance(result, Exception) or str(path) in str(result)


@pytest.mark.parametrize(
    ("here", "most"),
    [(b"score", 9), (b"score", 1), (b"2024-01-11T", 9), (b"xyz", 9)],
    ids=["every name of a column", "the name of a chunk", "a date", "a string in a list"],
)
def test_text_of_a_parquet_file_that_is_no_utf8_ends_nothing(
    folder: Path, here: bytes, most: int
) -> None:
    """Each was a UnicodeDecodeError, in this process or in whoever read the corpus."""
    path = folder / "bytes.parquet"
    out = io.BytesIO()
    rows = [{**row, "tags": ["xyz", "b"]} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(rows), out, compression="none", use_dictionary=False)
    reverse = out.getvalue()[::-1].replace(here[::-1], b"\xff" + here[:-1][::-1], most)
    path.write_bytes(reverse[::-1])
    batches, corrupt = read(path)
    assert bool(corrupt) == (not here.startswith(b"2024"))
    for docs in batches:
        docs.table.to_pylist()
