"""Ids: own ones are kept, made ones say where the document stands, every id comes once."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.manifests import changed_ids, part_path
from curate.corpus.sizes import Sizes
from curate.formats.inputs import plan_inputs
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import ID_SCHEMA, PartitionReader
from curate.run.ids import ISSUED, assign_ids
from curate.run.plan import EarlierIds
from llmcurate.base.disk.parquet_writer import TableWriter


def settled(bench, *inputs, size: int = 1024, earlier: EarlierIds | None = None) -> list[str]:
    """The ids of all documents after the first stage, in input order; earlier: of runs before,
    which this one joins then."""
    plan = plan_inputs([str(i) for i in inputs], size)
    folder = bench.folder / f"stage-{random.random()}"
    ids: list[list[str]] = []
    for part in range(len(plan.partitions)):
        writer = TableWriter(part_path(folder, part, "ids"))
        writer.write(ID_SCHEMA.empty_table())
        ids.append([])
        for batch in PartitionReader(plan, part, ReadSettings()):
            writer.write(batch.ids)
            ids[-1] += batch.docs.table["id"].to_pylist()
        writer.close()
    assign_ids(plan, folder, earlier)
    whole = (folder / "ids.parquet").read_bytes()
    assign_ids(plan, folder, earlier, sizes=Sizes(task_partitions=2))  # by tasks
    assert (folder / "ids.parquet").read_bytes() == whole
    assert not [*folder.glob("ids-*")]
    if earlier is not None:
        (folder / ISSUED).rename(bench.folder / f"given-{len(earlier.files)}.parquet")
    out = []
    for part, old in enumerate(ids):
        new = changed_ids(str(folder / "ids.parquet"), part)
        out += [new.get(n, name) for n, name in enumerate(old)]
    return out


def test_made_ids_count_from_the_start_of_the_file_in_any_slice(bench):
    rows = [{"text": f"{i} " + "x" * 200} for i in range(60)]
    source = bench.jsonl("in/deep/a.jsonl", rows)
    assert len(plan_inputs([str(source)], 1024).partitions) > 5
    assert settled(bench, source) == [f"a.jsonl#{i}" for i in range(60)]
    assert settled(bench, bench.folder / "in") == [f"deep/a.jsonl#{i}" for i in range(60)]


def test_repeated_ids_are_numbered_in_input_order_across_files(bench):
    padding = "x" * 900
    first = bench.jsonl("z.jsonl", [{"id": "a", "text": padding}, {"id": "b", "text": padding}])
    second = bench.jsonl("y.jsonl", [{"id": "a", "text": padding}, {"id": "a", "text": padding}])
    assert settled(bench, first, second) == ["a", "b", "a~2", "a~3"]
    assert settled(bench, second, first) == ["a", "a~2", "a~3", "b"]


def test_a_numbered_id_of_the_input_is_not_given_to_another_document(bench):
    names = ["a", "a", "a~3", "a", "a~2", "a~2", "a~02", "b~2", "b"]
    source = bench.jsonl("a.jsonl", [{"id": n, "text": "t"} for n in names])
    wanted = ["a", "a~4", "a~3", "a~5", "a~2", "a~2~2", "a~02", "b~2", "b"]
    assert settled(bench, source) == wanted


def test_files_of_one_name_in_two_folders_do_not_share_ids(bench):
    rows = [{"text": f"{i} " + "x" * 300} for i in range(10)]
    bench.jsonl("one/a.jsonl", rows)
    bench.jsonl("two/a.jsonl", rows)
    plain = [f"a.jsonl#{i}" for i in range(10)]
    ids = settled(bench, bench.folder / "one", bench.folder / "two")
    assert ids == [*plain, *(f"{n}~2" for n in plain)]
    swapped = settled(bench, bench.folder / "two", bench.folder / "one")
    assert swapped == [*ids[10:], *ids[:10]]  # a text has the same id whichever is given first


@given(names=st.lists(st.sampled_from(["a", "a~2", "a~3", "a~2~2", "~2", "b\n", None]), max_size=9))
@settings(max_examples=30)
def test_ids_come_once_and_the_first_of_each_keeps_its_own(bench, names):
    source = bench.jsonl("a.jsonl", [{"id": n, "text": "t"} for n in names])
    ids = settled(bench, source, size=64)  # some partitions
    assert len(set(ids)) == len(names)
    for i, name in enumerate(names):
        if name is not None and name not in names[:i]:
            assert ids[i] == name


def test_final_ids_are_in_corpus_rejected_and_decisions(bench):
    rows = [{"id": "a", "text": t} for t in ("same", "same", "other", "same")]
    rows += [{"text": "x" * 1500}, {"text": "x" * 1500}]
    source = bench.jsonl("a.jsonl", rows)
    bench.run(["dedup_exact"], source, read={"partition_bytes": 1024})
    assert bench.ids() == ["a", "a~3", "a.jsonl#4"]
    rejected = {r["id"]: r["detail"] for r in bench.rows("out", "rejected")}
    assert rejected == {"a~2": "a", "a~4": "a", "a.jsonl#5": "a.jsonl#4"}
    assert {d["id"] for d in bench.decisions()} == {"a", "a~2", "a~4", "a.jsonl#4", "a.jsonl#5"}


def one_after_the_other(bench, runs: list[list[str | None]]) -> list[str]:
    """The ids that runs give which know those of the ones before."""
    ids: list[str] = []
    for nth, names in enumerate(runs):
        files = tuple(bench.folder / f"given-{n}.parquet" for n in range(nth))
        source = bench.jsonl(f"{nth}.jsonl", [{"id": n, "text": "t"} for n in names])
        ids += settled(bench, source, earlier=EarlierIds(files, ""))
    return ids


RUNS = settings(max_examples=7)


@given(
    runs=st.lists(st.lists(st.sampled_from(["a", "b", "b#c", "x~", None]), max_size=6), max_size=4)
)
@RUNS
def test_runs_that_go_on_from_each_other_give_the_ids_of_one_run(bench, runs):
    files = [
        bench.jsonl(f"{i}.jsonl", [{"id": n, "text": "t"} for n in names])
        for i, names in enumerate(runs)
    ]
    whole = settled(bench, *files) if runs else []
    assert one_after_the_other(bench, runs) == whole


@given(
    runs=st.lists(st.lists(st.sampled_from(["a", "a~2", "a~3", "a~2~2"]), max_size=5), max_size=4)
)
@RUNS
def test_ids_are_unique_over_runs_whatever_numbered_ids_the_input_has(bench, runs):
    ids = one_after_the_other(bench, runs)
    assert len(set(ids)) == len(ids) == sum(map(len, runs))
