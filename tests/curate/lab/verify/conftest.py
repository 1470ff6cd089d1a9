"""A run with something for almost every library, which tests copy and spoil."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.demo.language import train_demo_model
from curate.demo.web import build_web
from curate.documents.attributes import pack, unpack
from tests.curate.conftest import Bench

STEPS: list[Any] = [
    {"extract": {"extractor": "resiliparse"}},
    {"language": {"keep": ["en"], "threshold": 0.5}},
    {"c4": {"min_sentences": 3}},
    {"dedup_minhash": {"preset": "fineweb"}},
    {"dedup_suffix_array": {"boundary": "line"}},
    {"dedup_bloom": {"mode": "dolma-paragraph", "false_positives": 1e-6}},
    {"tokenizer": {"vocab": 400}},
    "shards",
]


@pytest.fixture(scope="package")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run over the demo's web."""
    pytest.importorskip("fasttext_pybind")
    folder = tmp_path_factory.mktemp("verified")
    (folder / "web").mkdir()
    web = build_web(folder / "web")
    model = train_demo_model(folder / "language", quiet=True)
    bench = Bench(folder)
    bench.run(STEPS, *web.paths, workers=2, sets=(f"language.model={model}",))
    return folder / "out"


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, whose files may be changed."""
    yield shutil.copytree(finished, tmp_path / "out")


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Changes the rows of a parquet file."""
    table = unpack(pq.read_table(path))
    rows = change(table.to_pylist())
    pq.write_table(pack(pa.Table.from_pylist(rows, table.schema)), path)
