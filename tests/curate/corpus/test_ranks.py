"""Percentiles and shares computed by tasks equal those of one query over all sketches."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curate.corpus.ranks import float_ranges
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import SketchFile, view
from curate.scoring.perplexity.perplexity import Perplexity
from curate.scoring.quality.measures import kept_count
from curate.scoring.quality.quality import QualityShare
from llmcurate.base.disk.database import scratch_database
from tests.curate.corpus import reference_percentiles
from tests.curate.corpus.resolving import decide
from tests.curate.dying_process import Dying, Killed
from tests.curate.isolated_tasks import Alone

SCORE = st.one_of(
    st.none(),
    st.sampled_from([1.0, 2.0, 300.0, 300.0000000001, float("inf"), 5e-324]),
    st.floats(0, 1e6),
)
ROWS = st.lists(st.tuples(st.sampled_from(["", "de", "en"]), SCORE), max_size=25)


def write(folder: Path, parts: list[list[tuple[str, float | None]]]) -> tuple[SketchFile, ...]:
    """A file of sketches a part."""
    files = []
    for part, rows in enumerate(parts):
        columns = {
            "lang": pa.array([lang for lang, _ in rows], pa.string()),
            "score": pa.array([score for _, score in rows], pa.float64()),
            "first": pa.array([score and score / 2 for _, score in rows], pa.float64()),
            "part": pa.array([part] * len(rows), pa.int32()),
            "n": pa.array(range(7, 7 + len(rows)), pa.int64()),
            "id": pa.array([f"é{part}-{i}" for i in range(len(rows))], pa.string()),
        }
        files.append(SketchFile(part, folder / f"part-{part}.parquet", part))
        pq.write_table(pa.table(columns), files[-1].path)
    return tuple(files)


def table(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data))


@given(st.lists(ROWS, min_size=1, max_size=4), st.floats(0, 100), st.floats(0, 100), st.booleans())
@example([[("de", float("inf")), ("de", float("inf"))]], 30.0, 60.0, False)
@settings(max_examples=10, deadline=None)
def test_buckets_are_those_of_one_query(parts, lower, upper, given_cuts):
    head, tail = sorted((lower, upper))
    cuts = {"de": (2.0, 300.0)} if given_cuts else {}
    step = Perplexity(model="m.bin", head=head, tail=tail, cuts=cuts, first=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write(folder, parts)
        scores = [score for rows in parts for _, score in rows if score is not None]
        with scratch_database(folder / "spill") as db:
            view(db, files)
            want_cuts = reference_percentiles.percentiles(db, head, tail) | cuts
            counted = reference_percentiles.buckets(db, folder / "want.parquet", want_cuts)
        want = pq.read_table(folder / "want.parquet")
        first = None
        for most in (1, 30, 10**6):
            data, summary = decide(folder, files, step, sizes=Sizes(task_documents=most))
            assert table(data).equals(want.cast(table(data).schema))
            assert first in (None, (data, repr(summary))), "the result depends on groups"
            first = data, repr(summary)
        langs = {lang for lang, _, _ in counted}
        figures = summary["perplexity"]
        assert figures.keys() == {lang or "(none)" for lang in langs}
        for lang in langs:
            group = figures[lang or "(none)"]
            assert group["buckets"] == {b: n for g, b, n in counted if g == lang}
            assert repr(group["cuts"]) == repr([*want_cuts.get(lang, ())])
        binned = [sum(f["histogram"]["counts"]) for f in figures.values() if "histogram" in f]
        assert sum(binned) == len(scores)


@given(st.lists(st.lists(st.floats(0, 1), max_size=25), min_size=1, max_size=4), st.floats(0.01, 1))
@settings(max_examples=8, deadline=None)
def test_a_share_is_that_of_one_query(parts, share):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write(folder, [[("", abs(score)) for score in scores] for scores in parts])
        count = sum(map(len, parts))
        with scratch_database(folder / "spill") as db:
            view(db, files)
            last = kept_count(count, share) - 1 if count else 0
            kept, threshold = reference_percentiles.share(db, folder / "want.parquet", last)
        want = pq.read_table(folder / "want.parquet")
        for most in (1, 30, 10**6):
            step, sizes = QualityShare(keep_fraction=share), Sizes(task_documents=most)
            data, summary = decide(folder, files, step, sizes=sizes)
            assert table(data).equals(want.cast(table(data).schema))
            expected = {"documents": count, "threshold": threshold, "kept": kept}
            assert summary == {**expected, "dropped": count - kept}


@given(st.lists(st.floats(allow_nan=True), max_size=40))
def test_ranges_ascend_as_floats_do(values):
    array = np.sort(np.array(values, np.float64))
    assert (np.diff(float_ranges(array).astype(np.int64)) >= 0).all()


def test_a_resolve_that_died_in_any_phase_continues_after_it(tmp_path):
    parts = [[("en", float(7 * i % 31 + p)) for i in range(9)] for p in range(3)]
    files = write(tmp_path, parts)
    step = Perplexity(model="m.bin", first=True)
    want = decide(tmp_path, files, step)
    sizes = Sizes(task_documents=9)
    dying = Dying()
    for _ in range(3):
        with pytest.raises(Killed):
            decide(tmp_path, files, step, dying, sizes)
        assert [*tmp_path.glob("own/*")], "nothing is left to go on from"
    assert decide(tmp_path, files, step, dying, sizes) == want
    assert dying.names == [
        n for n in ("count_scores", "pick_scores", "write_pieces") for _ in range(2)
    ]


@pytest.mark.parametrize(
    "step",
    [Perplexity(model="m.bin", first=True), QualityShare(keep_fraction=0.3)],
    ids=["perplexity", "share"],
)
def test_tasks_of_one_phase_are_independent(tmp_path, step):
    folder = tmp_path / "here"
    folder.mkdir()
    files = write(folder, [[("en", float(7 * i % 31 + p)) for i in range(9)] for p in range(3)])
    want = decide(folder, files, step)
    sizes = Sizes(task_documents=9)
    alone = Alone(folder, tmp_path / "aside")
    assert decide(folder, files, step, alone, sizes) == want
    assert alone.seen == {"count_scores": 3, "pick_scores": 3, "write_pieces": 3}
