"""Runs of the Bloom dedup: any number of workers, kills, comparisons with other runs."""

from __future__ import annotations

import json
import os
import random
import signal
from typing import Any

import pyarrow as pa
import pytest

from curate.dedup.bloom import filter as bloom_pass
from curate.dedup.bloom.filter import read_header
from curate.dedup.bloom.seen_before import FILTER, DedupBloom
from curate.inspect.explain import explain
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.dedup.bloom_cases import SURE, line, opened, pages, run_step
from tests.curate.replayed_edits import replayed


def test_dolmas_documents_go_by_text_or_url_and_blank_ones_stay(bench):
    rows = [
        {"id": "a", "text": "One.", "url": "https://x.test/1"},
        {"id": "b", "text": "One.", "url": "https://x.test/2"},
        {"id": "c", "text": "one.", "url": "https://x.test/1"},
        {"id": "d", "text": " ", "url": None},
        {"id": "e", "text": " ", "url": ""},
    ]
    source = bench.jsonl("in.jsonl", rows)
    bench.run([{"dedup_bloom": {"mode": "dolma-document"}}], source, out="text")
    assert bench.ids("text") == ["a", "c", "d", "e"]
    bench.run([{"dedup_bloom": {"mode": "dolma-document", "key": "url"}}], source, out="url")
    assert bench.ids("url") == ["a", "b", "d", "e"]


def test_dolmas_modes_have_its_rate_of_wrong_answers(bench):
    """Of documents that no two are alike, one in some hundred went at 0.01."""
    source = bench.jsonl("in.jsonl", ({"id": str(i), "text": f"Text {i}."} for i in range(20_000)))
    for out, more in (("own", {}), ("loose", {"false_positives": 0.01})):
        bench.run([{"dedup_bloom": {"mode": "dolma-document", **more}}], source, out=out)
    assert len(bench.ids("own")) == 20_000 > len(bench.ids("loose"))
    rates = [
        DedupBloom(mode=m).false_positives for m in ("dolma-paragraph", "paragraph", "old-both")
    ]
    assert rates == [1e-6, 0.01, 0.01]


@pytest.mark.parametrize("mode", ["old-both"])
def test_bytes_do_not_depend_on_workers_and_edits_replay(bench, mode):
    rows = pages(300)
    sources = [bench.jsonl(f"in-{i}.jsonl", rows[i * 100 : i * 100 + 100]) for i in range(3)]
    step = [{"dedup_bloom": {"mode": mode}}]
    for workers in (1, 2):
        bench.run(step, *sources, out=f"w{workers}", workers=workers)
    assert bench.bytes_of("w1") == bench.bytes_of("w2")
    filters = [bench.folder / w / "index/dedup_bloom/own" / FILTER for w in ("w1", "w2")]
    assert filters[0].read_bytes() == filters[1].read_bytes()
    texts = {row["id"]: row["text"] for row in rows}
    kept = bench.rows("w1")
    assert any(row["edits"] for row in kept)
    for row in kept:
        assert replayed(texts[row["id"]], row["edits"]) == row["text"]
    gone = bench.rows("w1", "rejected")
    assert {r["rule"] for r in gone} <= {"seen_before", "nothing_left"} and gone
    assert {r["id"]: r["text"] for r in gone} == {r["id"]: texts[r["id"]] for r in gone}


def test_rejected_documents_record_overlap_and_threshold_and_kept_ones_their_overlap(bench):
    draw = random.Random(5)
    first, second = line(draw), line(draw)
    rows = [("a", first), ("b", f"{first}\n{second}"), ("c", second), ("d", line(draw)), ("e", "")]
    source = bench.jsonl("in.jsonl", [{"id": i, "text": t} for i, t in rows])
    bench.run([{"dedup_bloom": SURE}], source)
    kept = {r["id"]: r["dedup_bloom.overlap"] for r in bench.rows()}
    assert kept == {"a": None, "b": pytest.approx(0.5, abs=0.03), "d": None, "e": None}
    (gone,) = bench.rows(kind="rejected")
    assert (gone["id"], gone["rule"], gone["value"], gone["threshold"]) == (
        "c",
        "seen_before",
        1,
        0.8,
    )
    decisions = {(d["id"], d["span_start"]): d for d in bench.decisions()}
    assert decisions.keys() == {("b", 0), ("c", None)}
    for d in decisions.values():
        assert d["similarity"] == 1.0 and d["method"] == "bloom:old-both"
        assert d["cluster"] is d["kept_id"] is d["partner_id"] is None
    assert decisions["b", 0]["span_end"] == len(first)
    explanation = explain([bench.folder / "out"], "c")
    assert "bloom:old-both: seen before with similarity 1.000; the earlier" in str(explanation)
    explanation = explain([bench.folder / "out"], "b")
    assert f"bytes 0 to {len(first)} of its input were seen before (100%)" in str(explanation)


def test_the_report_says_how_full_and_how_wrong_the_filter_is(bench):
    outcome = bench.run([{"dedup_bloom": {}}], bench.jsonl("in.jsonl", pages(200)))
    (decided,) = [s.decided for s in outcome.stages if s.decided]
    assert (
        decided["dropped"] == decided["documents"] + decided["passages"] == len(bench.decisions())
    )
    assert 0 < decided["inserted"] < decided["keys"] and 0 < decided["fill"] < 0.5
    assert 0 <= decided["false_positives"] < 0.01 * 1.2
    assert any("1,000,000 random keys" in note for note in decided["notes"])
    page = (bench.folder / "out/report.html").read_text()
    assert "bloom:old-both" in page and "seen before; the earlier place is not recorded" in page
    record = json.loads((bench.folder / "out/run.json").read_text())
    figures = record["figures"]["duplicates"]["bloom:old-both"]
    assert (figures["clusters"], figures["unknown"]) == (0, decided["dropped"])


def corpora() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows = pages(240)
    return rows[:120], rows[120:]


def test_b_against_a_equals_the_part_of_b_in_a_run_over_both(bench):
    a, b = corpora()
    file_a, file_b = bench.jsonl("one.jsonl", a), bench.jsonl("two.jsonl", b)
    bench.run([{"dedup_bloom": SURE}], file_a, out="a")
    earlier = {"against": [str(bench.folder / "a")]}
    outcome = bench.run([{"dedup_bloom": {**SURE, **earlier}}], file_b, out="b", workers=2)
    bench.run([{"dedup_bloom": SURE}], file_a, file_b, out="both")
    late = {r["id"] for r in b}
    together = {r["id"]: r["text"] for r in bench.rows("both") if r["id"] in late}
    assert {r["id"]: r["text"] for r in bench.rows("b")} == together
    assert len(together) < len(b)
    own = "index/dedup_bloom/own"
    grown, whole, first = (opened(bench.folder / out / own / FILTER) for out in ("b", "both", "a"))
    assert grown.inserted == whole.inserted > first.inserted
    (decided,) = [s.decided for s in outcome.stages if s.decided]
    assert decided["inserted"] == grown.inserted - first.inserted
    assert decided["dropped"] == decided["members"] == len(bench.decisions("b"))


def test_a_run_against_a_grown_filter_and_its_parent_takes_each_key_once(bench):
    rows = pages(180)
    files = [bench.jsonl(f"{i}.jsonl", rows[60 * i : 60 * i + 60]) for i in range(3)]
    bench.run([{"dedup_bloom": {}}], files[0], out="r0")
    names = [str(bench.folder / f"r{i}") for i in range(2)]
    bench.run([{"dedup_bloom": {"against": names[:1]}}], files[1], out="r1")
    bench.run([{"dedup_bloom": {"against": names}}], files[2], out="r2")
    bench.run([{"dedup_bloom": {"against": names[1:]}}], files[2], out="r2b")
    assert bench.ids("r2") == bench.ids("r2b")
    first, second = (
        read_header(bench.folder / r / "index/dedup_bloom/own" / FILTER) for r in ("r2", "r2b")
    )
    assert first.checksum == second.checksum and len(first.parents) == 2


def test_other_settings_than_the_indexs_are_refused_but_another_size_is_not(bench):
    source = bench.jsonl("in.jsonl", pages(20))
    bench.run([{"dedup_bloom": {}}], source, out="a")
    earlier = [str(bench.folder / "a")]
    with pytest.raises(UsageError, match="ngram: 13"):
        bench.run([{"dedup_bloom": {"against": earlier, "ngram": 5}}], source, out="b")
    bench.run(
        [{"dedup_bloom": {"against": earlier, "expected": 99, "max_removal": 1}}], source, out="c"
    )


def test_a_filter_sized_for_too_few_ngrams_grows_with_a_note(bench):
    source = bench.jsonl("in.jsonl", pages(300))
    small = bench.run([{"dedup_bloom": {"expected": 100}}], source, out="small")
    (decided,) = [s.decided for s in small.stages if s.decided]
    assert decided["slices"] == 2 and any(
        "more n-grams than the 100 expected" in n for n in decided["notes"]
    )
    assert decided["false_positives"] < 0.01 * 1.2
    enough = bench.run([{"dedup_bloom": {"expected": 10**6}}], source, out="large")
    (decided,) = [s.decided for s in enough.stages if s.decided]
    assert decided["slices"] == 1 and decided["filter_bytes"] > 10**6


def test_killed_while_deciding_and_run_again_it_decides_the_same(tmp_path, monkeypatch):
    texts = [row["text"] for row in pages(200)]
    parts = [texts[:50], texts[50:150], texts[150:]]
    (tmp_path / "whole").mkdir()
    want, decisions, _ = run_step(DedupBloom(), parts, tmp_path / "whole")
    folder = tmp_path / "killed"
    folder.mkdir()
    child = os.fork()
    if child == 0:
        real, done = bloom_pass._batch, []

        def batch(*arguments: Any) -> pa.Table:
            if len(done) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            done.append(1)
            return real(*arguments)

        bloom_pass._batch = batch  # type: ignore[assignment]
        try:
            run_step(DedupBloom(), parts, folder)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    leftovers = list((folder / "own").iterdir())
    assert [p.name.endswith(FILTER) for p in leftovers] == [True] and leftovers[0].name != FILTER
    kept, again, _ = run_step(DedupBloom(), parts, folder)
    assert kept == want and again.equals(decisions)
    assert [p.name for p in (folder / "own").iterdir()] == [FILTER]
    files = [f / "own" / FILTER for f in (folder, tmp_path / "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_guard_stops_before_anything_is_applied(bench):
    same = line(random.Random(1))
    source = bench.jsonl("in.jsonl", [{"id": str(i), "text": same} for i in range(50)])
    with pytest.raises(RunFailed, match="would remove 49 of 50 documents"):
        bench.run([{"dedup_bloom": {}}], source)


def test_a_changed_threshold_or_rate_does_not_sketch_again(bench):
    source = bench.jsonl("in.jsonl", pages(30))
    for settings_ in ({}, {"threshold": 0.5}, {"false_positives": 0.1}, {"mode": "paragraph"}):
        bench.run([{"dedup_bloom": settings_}], source)
    assert len(list((bench.folder / "out/stages").rglob("part-*.sketch-*.parquet"))) == 1
    bench.run([{"dedup_bloom": {"ngram": 5}}], source)
    assert len(list((bench.folder / "out/stages").rglob("part-*.sketch-*.parquet"))) == 2


@pytest.mark.parametrize(
    "settings_, message",
    [
        ({"survivor": "longest"}, "survivor must be `first`"),
        ({"key": "url"}, "key: url needs mode: dolma-document"),
        ({"mode": "naive-both"}, "old-both"),
        ({"false_positives": 0}, "false_positives"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(bench, settings_, message):
    with pytest.raises(UsageError, match=message):
        bench.run([{"dedup_bloom": settings_}], bench.jsonl("in.jsonl", pages(3)))
