"""Report figures computed in parts and in any order equal those of one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.corpus.sizes import Sizes
from curate.corpus.sketches import run_here
from curate.inspect.report import store
from curate.inspect.report.page import Figures, gather
from llmcurate.base.messages import decode, encode, json_values

STEPS = [
    {"opt_out": {}},
    {"document_length": {"min": 5}},
    {"dedup_exact": {"key": "url", "survivor": "newest"}},
]
LABELS = ["opt_out", "document_length", "dedup_exact"]


def rows(number: int) -> Iterator[dict[str, Any]]:
    """Documents of one file, of which some are in the other files too, in newer versions."""
    for n in range(30):
        row = {
            "text": f"Page {n} of the mill. " * (n % 5),
            "url": f"https://h{n % 4}.test/{n % 20}",
            "source": "ab"[n % 2],
            "lang": "en" if n % 3 else "de",
            "date": f"20{10 + 7 * number}-0{1 + n % 9}-01T00:00:00Z",
        }
        if n % 10 == 7:
            row["opt_out_headers"] = "x-robots-tag: gptbot: noindex"
        yield row


@pytest.fixture(scope="module")
def out(shared_bench: Any) -> Path:
    for number in range(3):
        shared_bench.jsonl(f"in/{number}.jsonl", list(rows(number)))
    # A partition a file.
    settings = {"read": {"partition_bytes": 2500}}
    shared_bench.run(STEPS, shared_bench.folder / "in", **settings)
    folder: Path = shared_bench.folder / "out"
    return folder


def elsewhere(function: str, tasks: list[Any], result: type) -> Iterator[tuple[Any, Any]]:
    """The tasks from the last to the first, as JSON passes them to and from another machine."""
    sent = [type(task).from_json(task.to_json()) for task in reversed(tasks)]
    for task, value in run_here(function, sent, result):
        yield task, decode(result, encode(value))


def figures(out: Path, **how: Any) -> Figures:
    return gather(out, {}, steps=LABELS, **how)


def test_figures_of_tasks_are_those_of_one_process(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = figures(out)
    assert whole.opt_outs and whole.freshness and whole.examples
    monkeypatch.setattr(store, "GROUPS_A_RANGE", 2)
    calls = []

    def counted(function: str, tasks: list[Any], result: type) -> Iterator[tuple[Any, Any]]:
        calls.append((function.partition(":")[2], len(tasks)))
        return elsewhere(function, tasks, result)

    pieces = figures(out, run=counted, sizes=Sizes(report_bytes=1))
    assert json.dumps(json_values(pieces)) == json.dumps(json_values(whole))
    assert (pieces.examples, pieces.unsure, pieces.lost) == (
        whole.examples, whole.unsure, whole.lost
    )  # fmt: skip
    groups = len([*(out / "corpus").iterdir()])
    assert groups > 2 and {n for name, n in calls if name != "merge_pieces"} == {groups}
    assert {n for name, n in calls if name == "merge_pieces"} == {-(-groups // 2)}
    assert not [*out.glob(".spill*")]


@pytest.mark.parametrize(
    ("group_bytes", "views"),
    [(store.KEY_MOST, {"kept", "gone", "gone_rows", "decisions"}), (1, {"decisions"})],
)
def test_with_several_groups_this_process_opens_only_the_view_of_decisions(
    out: Path, group_bytes: int, views: set[str]
) -> None:
    with store.opened(out, group_bytes=group_bytes) as opened:
        assert opened is not None
        found = opened.rows("SELECT view_name FROM duckdb_views() WHERE NOT internal")
    assert {name for (name,) in found} == views


def test_a_small_report_uses_no_workers(out: Path) -> None:
    def refused(function: str, tasks: list[Any]) -> Iterator[tuple[Any, Any]]:
        raise AssertionError(function)

    assert figures(out, run=refused).rules.rules


def test_rows_are_found_in_every_batch_of_a_row_group(tmp_path: Path) -> None:
    path = str(tmp_path / "numbers.parquet")
    pq.write_table(pa.table({"n": range(900)}), path, row_group_size=600)
    wanted = [0, 199, 200, 450, 599, 600, 899]
    rows = store.read_rows([(path, row) for row in wanted], ["n"], 10)
    assert {row: values["n"] for (_, row), values in rows.items()} == {n: n for n in wanted}
