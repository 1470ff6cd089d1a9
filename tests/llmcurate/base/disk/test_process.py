"""Work in a few threads: results in order, with a bounded number in progress."""

from __future__ import annotations

import json
import threading
import time

import pytest

from curate.formats.inputs import plan_inputs
from llmcurate.base.disk.files import write_text
from llmcurate.base.disk.process import AT_ONCE, Threads, in_order
from llmcurate.base.disk.seals import sealing


def test_results_come_in_the_order_of_the_items_though_the_first_takes_longest():
    def work(n: int) -> int:
        time.sleep(0.05 if n == 0 else 0.0)
        return n * n

    assert list(in_order(work, range(100))) == [n * n for n in range(100)]


def test_in_order_works_only_a_bounded_number_of_items_ahead():
    begun: list[int] = []
    results = in_order(begun.append, range(1000))
    for taken in range(5):
        next(results)
        assert len(begun) <= taken + 1 + 2 * AT_ONCE
    results.close()
    assert len(begun) <= 5 + 2 * AT_ONCE


def test_an_error_is_raised_in_item_order_and_few_later_items_are_begun():
    begun: list[int] = []

    def work(n: int) -> int:
        begun.append(n)
        if n == 40:
            raise ValueError(f"item {n}")
        return n

    results = in_order(work, range(1000))
    assert [next(results) for _ in range(40)] == list(range(40))
    with pytest.raises(ValueError, match="item 40"):
        next(results)
    assert max(begun) <= 40 + 2 * AT_ONCE


def test_one_item_needs_no_thread():
    assert list(in_order(lambda n: threading.current_thread(), [1])) == [threading.main_thread()]


def test_a_plan_is_the_same_however_many_files_are_looked_at_at_once(tmp_path):
    for n in range(40):
        name = f"{n:02d}" + (".jsonl", ".txt", ".bin", ".html")[n % 4]
        content = "\1" if n % 4 == 2 else json.dumps({"text": "a", f"k{n}": 1})
        (tmp_path / name).write_text(content, encoding="utf-8")
    many = plan_inputs([str(tmp_path)])
    assert plan_inputs([str(tmp_path)], at_once=1) == many
    assert len(many.files) == 30
    assert [n.split("/")[-1] for n in many.notices] == [
        f"{n:02d}.bin: unknown format" for n in range(2, 40, 4)
    ]


def test_seals_of_threads_reach_only_the_code_that_started_them(tmp_path):
    ready, written = threading.Event(), threading.Event()

    def beside() -> list[list[object]]:
        with sealing() as seals:
            ready.set()
            assert written.wait(60)
            write_text(tmp_path / "beside", "2")
        return seals

    with Threads(1) as threads, sealing() as seals:
        other = threads.submit(beside)
        assert ready.wait(60)
        write_text(tmp_path / "here", "1")
        written.set()
        assert [path for path, _ in other.result()] == [str(tmp_path / "beside")]
    assert {path for path, _ in seals} == {str(tmp_path / "here"), str(tmp_path / "beside")}
