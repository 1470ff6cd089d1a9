"""The scores that a run stored, as arrays: one row a document, kept ones first.

Only the columns that rules look at are read, and of the texts only how long they are; those
lengths are written down beside the run, since reading texts takes longer than all the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.manifests import FOLDERS, manifest_path
from curate.documents.rejected import REASONS, is_rejected_file, reason_codes
from curate.inspect.report.store import numeric_columns
from curate.run.homes import Corpus
from llmcurate.base.disk.files import replacing
from llmcurate.base.errors import UsageError, may_not_write

FEW = 4096  # texts at once: to get memory for more of them takes longer than to read them
THREADS = min(4, os.cpu_count() or 1)  # for decompression; memory is a file's columns a thread
SIZES, HOME_SIZES = Path("stages", "text-sizes"), Path("runs", ".text-sizes")


@dataclass(frozen=True)
class Scores:
    """Of all documents of a run.

    kept: how many of the rows stand in corpus/. forgotten: rejected documents that are no rows,
    since what marked them was forgotten with their texts. columns: name -> float64[rows], NaN where
    nothing was measured; integers: those of whole numbers. lang: int[rows], an index into `langs`,
    -1 for none. bytes: int64[rows] of text.
    primary: int[rows], an index into `rules` of the first reason, -1 for kept ones. marks: rule ->
    int64[marked], the rows that the rule marked.
    """

    kept: int
    forgotten: int
    columns: dict[str, np.ndarray]
    integers: frozenset[str]
    langs: list[str]
    lang: np.ndarray
    bytes: np.ndarray
    rules: list[str]
    primary: np.ndarray
    marks: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.bytes)


def read(corpus: Corpus, columns: Iterable[str]) -> Scores:
    """The named columns of a finished run. UsageError where OUT has no documents."""
    out, kept_files, gone_files = corpus.out, corpus.kept, corpus.gone
    if not kept_files or not gone_files:
        raise UsageError(f"{out} holds no corpus/ and rejected/ of a run: name the OUT of one")
    names = list(dict.fromkeys(columns))
    paths = [*kept_files, *gone_files]
    try:
        starts = np.concatenate(([0], np.cumsum([pq.read_metadata(p).num_rows for p in paths])))
        numbers = {name: np.empty(int(starts[-1]), np.float64) for name in names}
        rows = [slice(a, z) for a, z in pairwise(starts.tolist())]
        with ThreadPoolExecutor(THREADS) as pool:
            filled = [
                pool.submit(_fill, numbers, *place) for place in zip(paths, rows, strict=True)
            ]
            sizes = _sizes(corpus, paths, pool)
            tables = [each.result() for each in filled]
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(f"{out} cannot be read ({reason}): run its recipe again") from None
    if starts[-1] != len(sizes):
        raise UsageError(f"{out / SIZES} does not fit the run: remove it and ask again")
    first = int(starts[len(kept_files)])
    langs, lang = _langs(tables)
    rules, primary, marks = _reasons(tables[len(kept_files) :], first)
    whole = numeric_columns(pq.read_schema(paths[0])) | numeric_columns(pq.read_schema(paths[-1]))
    integers = frozenset(n for n in names if whole.get(n))
    present = np.arange(len(primary)) < first
    present |= primary >= 0
    forgotten = int(np.count_nonzero(~present))
    if forgotten:
        numbers = {name: values[present] for name, values in numbers.items()}
        lang, sizes, primary = lang[present], sizes[present], primary[present]
        row = np.cumsum(present) - 1
        marks = {rule: row[rows] for rule, rows in marks.items()}
    return Scores(first, forgotten, numbers, integers, langs, lang, sizes, rules, primary, marks)


def _fill(numbers: dict[str, np.ndarray], path: Path, rows: slice) -> pa.Table:
    with pq.ParquetFile(path) as file:
        have = set(file.schema_arrow.names)
        others = [
            n for n in ("lang", REASONS) if n in have and (is_rejected_file(path) or n == "lang")
        ]
        columns_read = [*(n for n in numbers if n in have), *others]
        table = file.read(columns=columns_read, use_threads=False)
    for name, array in numbers.items():
        at = rows.start
        if name not in have:
            array[rows] = np.nan
            continue
        for chunk in table[name].chunks:
            values = pc.fill_null(pc.cast(chunk, pa.float64()), np.nan)
            array[at : at + len(chunk)] = np.from_dlpack(values)
            at += len(chunk)
    return table.select(others)


def _sizes(corpus: Corpus, paths: list[Path], pool: ThreadPoolExecutor) -> np.ndarray:
    """int64[rows]: bytes of the texts, from the file of an earlier call where it is of this run."""
    out, digest = corpus.out, hashlib.sha256()
    for name in FOLDERS:
        manifest = manifest_path(out / name)
        digest.update(manifest.read_bytes() if manifest.is_file() else b"")
    for path in paths:  # a folder without manifests is known by its files
        stat = path.stat()
        digest.update(json.dumps([path.name, stat.st_size, stat.st_mtime_ns]).encode())
    key = digest.digest()
    stored = out / (HOME_SIZES if corpus.is_home else SIZES)
    if stored.exists():
        data = stored.read_bytes()
        if data[: len(key)] == key and len(data) % 8 == 0:
            return np.frombuffer(data, np.int64, offset=len(key))
    sizes = np.concatenate(list(pool.map(_lengths, paths)))
    try:
        with replacing(stored) as aside:
            aside.write_bytes(key + sizes.tobytes())
    except OSError as error:  # somebody else's run: it can be read all the same
        if not may_not_write(error):
            raise
    return sizes


def _lengths(path: Path) -> np.ndarray:
    sizes = [np.zeros(0, np.int64)]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(FEW, columns=["text"], use_threads=False):
            size = pc.fill_null(pc.binary_length(batch.column(0)), 0)
            sizes.append(size.to_numpy(zero_copy_only=False).astype(np.int64))
    return np.concatenate(sizes)


def _langs(tables: list[pa.Table]) -> tuple[list[str], np.ndarray]:
    column = pa.chunked_array(
        [
            chunk
            for t in tables
            for chunk in (
                t["lang"].chunks
                if "lang" in t.column_names
                else [pa.nulls(t.num_rows, pa.string())]
            )
        ],
        pa.string(),
    )
    coded = column.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    at = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
    return coded.dictionary.to_pylist(), at.astype(np.int64)


def _reasons(
    tables: list[pa.Table], first_row: int
) -> tuple[list[str], np.ndarray, dict[str, np.ndarray]]:
    """(rules, primary: int[rows], marks) of the rejected documents' lists of reasons."""
    names: dict[str, int] = {}
    rows, codes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    start = first_row
    for table in tables:
        for lists in table[REASONS].chunks:
            sizes, numbers = reason_codes(lists, names)
            rows.append(np.repeat(np.arange(start, start + len(lists)), sizes))
            codes.append(numbers)
            start += len(lists)
    row, code = np.concatenate(rows), np.concatenate(codes)
    primary = np.full(start, -1, np.int64)
    if len(row):
        first = np.flatnonzero(np.diff(row, prepend=-1))
        primary[row[first]] = code[first]
    order = np.argsort(code, kind="stable")
    ends = np.searchsorted(code[order], np.arange(len(names) + 1))
    marks = {n: row[order[ends[c] : ends[c + 1]]] for n, c in names.items()}
    return list(names), primary, marks
