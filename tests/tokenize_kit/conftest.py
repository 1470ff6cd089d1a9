from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("LLMCURATE_SHARED", ROOT.parent / "shared"))
NAMES = [
    "en-peps",
    "th-thaigov",
    "indic-stories",
    "ja-aozora",
    "ru-novels",
    "zh-modern",
    "de-novels",
]


@pytest.fixture(scope="session")
def real_documents() -> list[dict[str, str]]:
    """Some 2 MB of prose and documentation in Latin, Thai, Indic, Japanese, Cyrillic, Chinese."""
    folder = SHARED / "corpora" / "longtext"
    if not folder.is_dir():
        pytest.skip(f"no real texts at {folder}: set LLMCURATE_SHARED")
    zstandard = pytest.importorskip("zstandard")
    documents = []
    for name in NAMES:
        with (folder / f"{name}.jsonl.zst").open("rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
            size = 0
            for line in lines:
                documents.append(json.loads(line))
                size += len(documents[-1]["text"].encode())
                if size > 250_000:
                    break
    return documents


@pytest.fixture(scope="session")
def real_texts(real_documents: list[dict[str, str]]) -> list[str]:
    return [document["text"] for document in real_documents]


@pytest.fixture(scope="session")
def batch_of():
    """Rows (id, text) or (id, text, source, lang) as a record batch."""

    def build(*rows: tuple[str, ...]) -> pa.RecordBatch:
        names = ["id", "text", "source", "lang"]
        columns = [dict(zip(names, row, strict=False)) for row in rows]
        schema = pa.schema([(name, pa.string()) for name in names])
        return pa.RecordBatch.from_pylist(columns, schema=schema)

    return build
