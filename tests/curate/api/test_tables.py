"""Documents in memory: tables and rows become files that are named by their content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.api.corpus import Corpus, names_of
from llmcurate.base.errors import UsageError

TEXTS = ["one two", "three"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))


def made_by(library: str) -> Any:
    table = pa.table({"text": TEXTS})
    if library == "rows":
        return [{"text": TEXTS[0]}, {"text": TEXTS[1]}]
    if library == "arrow":
        return table
    if library == "batch":
        return table.to_batches()[0]
    module = pytest.importorskip(library.partition(" ")[0])
    if library == "datasets streamed":
        return module.Dataset(table).to_iterable_dataset()
    return module.Dataset(table) if library == "datasets" else module.DataFrame({"text": TEXTS})


@pytest.mark.parametrize(
    "library", ["rows", "arrow", "batch", "pandas", "polars", "datasets", "datasets streamed"]
)
def test_the_same_rows_of_any_library_are_the_same_file(library: str) -> None:
    (first,), (again,) = names_of(made_by(library)), names_of(made_by(library))
    assert first == again and pq.read_table(first).to_pydict() == {"text": TEXTS}
    assert [first] == names_of(pa.table({"text": TEXTS}))


def test_different_rows_get_different_files_and_paths_may_be_mixed_with_tables() -> None:
    table = pa.table({"text": TEXTS})
    names = names_of(["a.jsonl", table, [{"text": "other", "n": 1}]])
    assert names[0] == "a.jsonl" and len(set(names)) == 3
    assert Corpus.read(table, table.slice(1)).inputs[0] == names[1]


def test_an_index_of_pandas_and_the_pieces_of_a_table_change_nothing() -> None:
    pandas = pytest.importorskip("pandas")
    whole = names_of(pa.table({"text": TEXTS}))
    assert names_of(pandas.DataFrame({"text": TEXTS}, index=[7, 3])) == whole
    pieces = pa.concat_tables([pa.table({"text": [text]}) for text in TEXTS])
    assert names_of(pieces) == whole


@pytest.mark.parametrize("value", [5, {"text": "a"}, [["a", 5]], [{"text": object()}]])
def test_values_without_documents_are_refused_in_one_line(value: Any) -> None:
    with pytest.raises(UsageError) as refusal:
        Corpus.read(value)
    assert "\n" not in str(refusal.value)
