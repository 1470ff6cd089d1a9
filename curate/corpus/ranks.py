"""Scores at given ranks: exact order statistics of a corpus, by language, computed in tasks. A
range is all floats with the same first 20 bits, so there are 256 ranges per octave. (For many
ranks, the first 28 bits count: 65,536 ranges per octave.) A first round of tasks counts the scores
in each range. A second round writes the scores in ranges that contain a wanted rank: each distinct
score once, with its count. So the scores are never all sorted, and the caller holds few of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.shuffle.tasks import Group, GroupTask, part_files, run_tasks
from curate.corpus.sketches import Run
from llmcurate.base.disk.database import paths_literal
from llmcurate.base.disk.files import replacing

# The number of first bits of a float that give its range. FINE is for many ranks: with BITS, the
# wanted ranges would hold most scores.
BITS, FINE = 20, 28
ALL = ""  # stands for the language if scores are not separated by language

TOTALS = pa.schema(
    [
        ("lang", pa.string()),
        ("documents", pa.int64()),
        ("scored", pa.int64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
RANGES = pa.schema([("lang", pa.string()), ("place", pa.uint32()), ("scores", pa.int64())])
SCORES = pa.schema([("lang", pa.string()), ("score", pa.float64()), ("scores", pa.int64())])

Ranked = dict[str, dict[int, float]]  # score by language and rank (0 is the least score)


def float_ranges(scores: np.ndarray, bits: int = BITS) -> np.ndarray:
    """Return uint32[n]: the number of the range of each score (float64[n]). All floats with the
    same first `bits` bits are a range. Numbers ascend with the floats; NaN has the greatest."""
    pattern = scores.view(np.uint64)
    low = np.uint64(1 << 63)
    ordered = np.where(pattern & low, ~pattern, pattern | low)
    return (ordered >> np.uint64(64 - bits)).astype(np.uint32)


def read_scores(
    group: Group, by_lang: bool, column: str = "score"
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Read the scores of documents from a group of files. Return (languages, language index of each
    score: int64, scores: float64). NaN means no score. `column` is a column of scores or of lists
    of scores; in a list, each score counts."""
    columns = [column, *(["lang"] if by_lang else [])]
    tables = []
    for file in group.files:  # one by one: a data set would make a column of a folder `lang=de`
        with pq.ParquetFile(file.path, pre_buffer=False) as source:
            tables.append(source.read(columns=columns, use_threads=False))
    table = pa.concat_tables(tables).combine_chunks()
    listed = pa.types.is_list(table.schema.field(column).type)
    each = pc.list_parent_indices(table[column]).to_numpy() if listed else slice(None)
    scores = pc.list_flatten(table[column]) if listed else table[column]
    score = scores.cast(pa.float64()).to_numpy()
    if not by_lang:
        return [ALL], np.zeros(len(score), np.int64), score
    coded = table["lang"].combine_chunks()
    if isinstance(coded, pa.ChunkedArray):  # no rows
        return [], np.zeros(0, np.int64), score
    coded = coded.dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)[each], score


# Files of a group: totals by language, scores by range, the scores of the wanted ranges.
TOTALS_FILE, RANGES_FILE, SCORES_FILE = "seen.parquet", "ranges.parquet", "scores.parquet"


@dataclass(frozen=True)
class ScoresTask(GroupTask):
    """A task on the scores of a group of documents: it counts all scores, or selects those in the
    ranges `wanted`. The input is files of sketches (one row per document)."""

    by_lang: bool  # True if languages have separate scores
    column: str  # column of the sketches that has the scores
    bits: int  # number of first bits of a float that give its range
    wanted: dict[str, list[int]] = field(default_factory=dict)  # by language: ranges to select


def count_scores(task: ScoresTask) -> None:
    """Count the scores in a group of sketch files, in the first of two rounds (see `find_ranks`).
    For each language, write the number of documents and of scores, the least and greatest score,
    and the number of scores in each range (floats with equal first bits). This takes some 40 bytes
    of memory per document."""
    bits = task.bits
    langs, code, score = read_scores(task.group, task.by_lang, task.column)
    mask = ~np.isnan(score)
    documents = np.bincount(code, minlength=len(langs))
    code, score = code[mask], score[mask]
    scored = np.bincount(code, minlength=len(langs))
    low, high = np.full(len(langs), np.inf), np.full(len(langs), -np.inf)
    np.minimum.at(low, code, score)
    np.maximum.at(high, code, score)
    keys, counts = np.unique((code << bits) | float_ranges(score, bits), return_counts=True)
    names = pa.array(langs, pa.string())
    none = scored == 0
    totals = [names, documents, scored, pa.array(low, mask=none), pa.array(high, mask=none)]
    ranges = [names.take(pa.array(keys >> bits)), keys & ((1 << bits) - 1), counts]
    _store(task.file(TOTALS_FILE), TOTALS, totals)
    _store(task.file(RANGES_FILE), RANGES, ranges)


def _store(path: Path, schema: pa.Schema, columns: list[Any]) -> None:
    arrays = [pa.array(c).cast(f.type) for c, f in zip(columns, schema, strict=True)]
    with replacing(path, sync=False) as aside:
        pq.write_table(pa.table(arrays, schema=schema), aside)


def pick_scores(task: ScoresTask) -> None:
    """Write each distinct score in the ranges `task.wanted`, and its count. A range is all floats
    with the same first bits. This is a task of the second round (see `find_ranks`)."""
    langs, code, score = read_scores(task.group, task.by_lang, task.column)
    range_number = float_ranges(score, task.bits)
    ranges: list[tuple[str, np.ndarray, np.ndarray]] = []
    for number, lang in enumerate(langs):
        numbers = np.array(task.wanted.get(lang, []), np.uint32)
        if len(numbers):
            mask = (code == number) & np.isin(range_number, numbers) & ~np.isnan(score)
            ranges.append((lang, *np.unique(score[mask], return_counts=True)))
    columns: list[Any] = [
        [lang for lang, values, _ in ranges for _ in values],
        np.concatenate([np.empty(0), *(values for _, values, _ in ranges)]),
        np.concatenate([np.empty(0, np.int64), *(counts for _, _, counts in ranges)]),
    ]
    _store(task.file(SCORES_FILE), SCORES, columns)


def write_counts(
    run: Run,
    folder: Path,
    groups: list[Group],
    by_lang: bool,
    column: str = "score",
    bits: int = BITS,
) -> None:
    """Count the scores in each range of floats, and write the counts to `folder`. All floats with
    the same first `bits` bits are a range. `column` is the input column with the scores."""
    tasks = [ScoresTask(g.part, folder, g, by_lang, column, bits) for g in groups]
    run_tasks(run, f"{__name__}:count_scores", tasks)


def score_totals(db: Any, folder: Path, count: int) -> dict[str, tuple[int, int, float, float]]:
    """Return (documents, scores, least score, greatest score) for each language, from `count` files
    of such totals in `folder`, one per group of input files."""
    if not count:
        return {}
    paths = paths_literal(part_files(folder, TOTALS_FILE, count))
    rows = db.execute(
        f"""SELECT lang, sum(documents)::BIGINT, sum(scored)::BIGINT, min(low), max(high)
        FROM read_parquet({paths}) GROUP BY lang ORDER BY lang"""
    ).fetchall()
    return {lang: tuple(totals) for lang, *totals in rows}


def find_ranks(
    run: Run,
    db: Any,
    folder: Path,
    groups: list[Group],
    counted: Path,
    wanted: Mapping[str, list[int]],
    by_lang: bool,
    column: str = "score",
    bits: int = BITS,
) -> Ranked:
    """Return the score at each wanted rank of each language. `wanted` has the ranks by language;
    documents without a score have no rank. A first round of tasks, `count_scores`, has counted the
    scores in each range of floats, in the folder `counted`. The second round, here, collects the
    scores in ranges with a wanted rank. `column` and `bits` must be the same in both rounds."""
    ranges = _by_lang(db, part_files(counted, RANGES_FILE, len(groups)), "place")
    # By language and rank: the range that contains it, and the number of scores before that range.
    range_of_rank: dict[str, dict[int, tuple[int, int]]] = {}
    for lang, ranks in wanted.items():
        values, counts = ranges[lang]
        ends = np.cumsum(counts)
        at = np.searchsorted(ends, ranks, "right")
        before = (ends - counts)[at].tolist()
        range_of_rank[lang] = dict(
            zip(ranks, zip(values[at].astype(np.int64).tolist(), before, strict=True), strict=True)
        )
    ranges_by_lang = {
        lang: sorted({number for number, _ in ranges_of_lang.values()})
        for lang, ranges_of_lang in range_of_rank.items()
    }
    tasks = [ScoresTask(g.part, folder, g, by_lang, column, bits, ranges_by_lang) for g in groups]
    run_tasks(run, f"{__name__}:pick_scores", tasks)
    scores = _by_lang(db, part_files(folder, SCORES_FILE, len(groups)), "score")
    ranked: Ranked = {}
    for lang, ranges_of_lang in range_of_rank.items():
        values, counts = scores[lang]
        range_number = float_ranges(np.ascontiguousarray(values), bits)
        for rank, (wanted_range, before) in ranges_of_lang.items():
            mask = range_number == wanted_range
            k = int(np.searchsorted(np.cumsum(counts[mask]) + before, rank, "right"))
            ranked.setdefault(lang, {})[rank] = float(values[mask][k])
    return ranked


def _by_lang(db: Any, paths: list[Path], column: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rows = db.execute(
        f"""SELECT lang, {column}, sum(scores)::BIGINT AS scores
        FROM read_parquet({paths_literal(paths)}) GROUP BY lang, {column} ORDER BY lang, {column}"""
    ).fetchnumpy()
    langs = np.array(rows["lang"], object)
    bounds = [0, *(np.flatnonzero(langs[1:] != langs[:-1]) + 1).tolist(), len(langs)]
    return {
        langs[begin]: (np.asarray(rows[column][begin:end]), np.asarray(rows["scores"][begin:end]))
        for begin, end in pairwise(bounds)
        if end > begin
    }
