"""Damaged indexes: of an earlier run that a dedup compares with, and of a search."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from curate.corpus.indexes import Index, IndexRecord, all_in, write_record
from curate.dedup.suffix_array.search import find, longest
from curate.dedup.suffix_array.search_index import SearchIndex, _digest
from curate.lab.semantic.matrix import Basis
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.conftest import Bench, pages
from tests.curate.dedup.search_indexes import index_of
from tests.fuzz.mutations import FUZZ, SEEDS, contents, damaged, damaged_tree, outcome

ODD_NUMBERS = [0, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**64 - 1, 1e300]
TEXTS = [f"The {n} mills stand on the hill, ภาษา {n % 3}." for n in range(20)]
ASKED = "On the hill, ภาษา 2. Nobody stands there."


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search") / "whole"
    folder.mkdir()
    index_of(folder, TEXTS, sort_bytes=1 << 11)
    return folder


@FUZZ
@given(seed=SEEDS)
def test_a_damaged_search_index_gives_the_right_answer_or_one_line(search: Path, seed: int) -> None:
    """Where checksums are made to fit, as who writes an index can, no answer is promised."""
    right = find(SearchIndex(search), "the hill"), longest(SearchIndex(search), ASKED)
    folder = search.parent / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(search, folder)
    draw = random.Random(seed)
    path = draw.choice(sorted(folder.iterdir()))
    path.write_bytes(damaged(path.read_bytes(), seed))
    made_to_fit = seed % 2 == 0
    if made_to_fit:
        record = json.loads((search / "search.json").read_text())
        if path.suffix == ".json":
            record = damaged_tree(record, seed)
        if isinstance(record, dict):
            record["xxh3"] = {}
            if isinstance(record.get("files"), dict) and path.name in record["files"]:
                record["files"][path.name] = path.stat().st_size
            record["digest"] = _digest(record)
        (folder / "search.json").write_text(json.dumps(record))

    def ask() -> object:
        return find(SearchIndex(folder), "the hill"), longest(SearchIndex(folder), ASKED)

    result = outcome(ask)
    assert made_to_fit or isinstance(result, Exception) or result == right
    assert not isinstance(result, Exception) or str(folder) in str(result)


STEPS = {
    "dedup_exact": {},
    "dedup_minhash": {"bands": 4, "rows": 2},
    "dedup_bloom": {},
    "dedup_passages": {},
    "dedup_suffix_array": {"threshold": 60},
    "dedup_semantic": {"embedding": "hashed"},
}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bench = Bench(tmp_path_factory.mktemp("earlier"))
    bench.jsonl("two.jsonl", pages(12, seed=1))
    bench.run([{n: s} for n, s in STEPS.items()], bench.jsonl("in.jsonl", pages(30)), out="one")
    return bench.folder


# Of files that are damaged as they lie, which their readers name.
READERS = (pa.ArrowException, duckdb.Error, OSError, BadZipFile)


def _other_values(path: Path, seed: int) -> None:
    """A parquet file that is whole, with other values in a column and rows that are not there."""
    draw, table = random.Random(seed), pq.read_table(path)
    column = draw.randrange(table.num_columns)
    field, values = table.schema.field(column), table.column(column).to_pylist()
    for _ in range(draw.choice((1, 5, 50))):
        row = draw.randrange(max(1, len(values)))
        if not values:
            break
        value = values[row]
        if isinstance(value, bytes):
            value = damaged(value, draw.randrange(99))
        elif isinstance(value, list):
            value = draw.choice(([], value[1:], value * 3, value[::-1], [*value, *ODD_NUMBERS]))
        elif isinstance(value, (int, float)):
            value = draw.choice(ODD_NUMBERS)
        elif isinstance(value, str):
            value = draw.choice(("", "x" * 3000, values[0]))
        values[row] = draw.choice((value, value, value, None))
    with suppress(pa.ArrowException, OverflowError, TypeError):
        table = table.set_column(column, field, pa.array(values, field.type))
    rows = draw.choice((slice(None), slice(None), slice(1, None), slice(0, 0)))
    keep = list(range(table.num_rows))[rows]
    pq.write_table(table.take(pa.array(keep, pa.int64())), path)


@pytest.mark.slow
@FUZZ
@given(seed=SEEDS)
def test_a_dedup_against_a_damaged_index_ends_and_touches_nothing_else(
    earlier: Path, seed: int
) -> None:
    """That a damaged one is noticed is held by the tests of `llmcurate check`; what is made to fit
    goes through the kernels."""
    draw = random.Random(seed)
    for name in ("index", "out"):
        shutil.rmtree(earlier / name, ignore_errors=True)
    shutil.copytree(earlier / "one" / "index", earlier / "index")
    name = draw.choice(list(STEPS))
    files = sorted(p for p in (earlier / "index" / name).rglob("*") if p.is_file())
    path = draw.choice(files)
    if path.suffix == ".parquet" and draw.random() < 0.8:
        _other_values(path, seed)
    elif path.suffix == ".json" and draw.random() < 0.8:
        path.write_text(json.dumps(damaged_tree(json.loads(path.read_bytes()), seed)))
    else:
        path.write_bytes(damaged(path.read_bytes(), seed))
    step = {name: {**STEPS[name], "against": [str(earlier / "index")]}}
    before = contents(earlier / "one")
    with suppress(*READERS):
        outcome(lambda: Bench(earlier).run([step], earlier / "two.jsonl"))
    assert contents(earlier / "one") == before


@pytest.mark.parametrize("record", ["[]", "7", "{}"])
def test_an_invalid_index_record_is_a_one_line_error(tmp_path: Path, record: str) -> None:
    (tmp_path / "index.json").write_text(record)
    with pytest.raises(
        RunFailed, match=r"index\.json was changed after it was written: run that dedup"
    ):
        all_in(tmp_path)


def test_an_index_has_as_many_partitions_as_files_of_sketches(tmp_path: Path) -> None:
    files = {"sketch-00000.parquet": [3, "x"], "ids.parquet": [3, "x"]}
    write_record(tmp_path, IndexRecord(1, "a", "", "", 1, {}, "", False, files))
    (index,) = all_in(tmp_path)
    assert index.parts == 1


@pytest.mark.parametrize("files", [[["ids.parquet", [3, "x"]]], {"../victim": [3, "x"]}], ids=str)
def test_invalid_files_in_an_index_record_are_a_one_line_error(
    tmp_path: Path, files: object
) -> None:
    record = IndexRecord(1, "a", "", "", 1, {}, "", False, files)
    write_record(tmp_path, record)
    with pytest.raises(RunFailed, match=r"index\.json was changed after it was written"):
        Index("a", tmp_path, record).check()


@pytest.mark.parametrize("row", [[5, -1], [-2, -1], [0, -1, 0]], ids=str)
def test_a_basis_that_kernels_cannot_follow_is_a_one_line_error(
    tmp_path: Path, row: list[int]
) -> None:
    whole = np.zeros(2, np.float32), np.array([0, -1], np.int32), np.zeros((1, 3), np.float32)
    mixed = np.zeros((3, 2), np.float32)
    Basis(*whole, mixed).save(tmp_path / "basis.npz")
    basis = Basis.load(tmp_path / "basis.npz")
    with pytest.raises(UsageError, match="unknown features"):
        basis.vectors(np.array([0, 1]), np.array([2], np.int32), np.array([1], np.int32))
    Basis(whole[0], np.array(row, np.int32), whole[2], mixed).save(tmp_path / "basis.npz")
    with pytest.raises(UsageError, match="is damaged: run that dedup again"):
        Basis.load(tmp_path / "basis.npz")


@pytest.mark.parametrize("rows", [1 << 40, 10**30])
def test_a_basis_that_claims_more_numbers_than_it_has_is_a_one_line_error(
    tmp_path: Path, rows: int
) -> None:
    Basis(
        np.zeros(2, np.float32), np.array([0, -1], np.int32), np.zeros((1, 3), np.float32),
        np.zeros((3, 2), np.float32),
    ).save(tmp_path / "whole.npz")  # fmt: skip
    with ZipFile(tmp_path / "whole.npz") as whole, ZipFile(tmp_path / "basis.npz", "w") as claims:
        for name in whole.namelist():
            data = whole.read(name)
            head = f"'shape': ({rows},), }}".encode()
            if name == "idf.npy":
                data = data.replace(b"'shape': (2,), }".ljust(len(head)), head)
            claims.writestr(name, data)
    with pytest.raises(UsageError, match=r"basis\.npz is damaged: run that dedup again"):
        Basis.load(tmp_path / "basis.npz")
