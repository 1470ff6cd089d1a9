"""Whole runs: the same bytes for any number of workers, reuse, repair, ids, reasons."""

from __future__ import annotations

import gzip
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.corpus.manifests import part_path, read_kept
from curate.run.records import reading_notices
from llmcurate.base.errors import UsageError

STEPS = [
    "c4",
    {"dedup_exact": {"key": "url", "survivor": "newest"}},
    {"dedup_exact": {"key": "text", "survivor": "longest"}},
]
SMALL = {"partition_bytes": 8000, "batch_rows": 20}


@pytest.fixture(scope="module")
def base(shared_bench, make_pages):
    """One finished run over 150 documents in several partitions."""
    source = shared_bench.jsonl("in.jsonl", make_pages(150))
    shared_bench.outcome = shared_bench.run(STEPS, source, out="base", read=SMALL)
    return shared_bench


def copied(bench, name: str) -> Path:
    target = bench.folder / name
    shutil.copytree(bench.folder / "base", target)
    return target


def times(folder: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in sorted(folder.glob("part-*.parquet"))}


def stage(out: Path, number: int) -> Path:
    (folder,) = (out / "stages").glob(f"{number:02d}-*")
    return folder


def test_two_workers_write_the_bytes_of_one(base):
    base.run(STEPS, base.folder / "in.jsonl", out="two", workers=2, read=SMALL)
    first, second = base.bytes_of("base"), base.bytes_of("two")
    assert len(first) > 8 and "decisions.parquet" in first
    assert first == second


def test_two_runs_of_one_process_leave_each_others_files_alone(bench, make_pages):
    """Each in a thread, as a notebook may start them; both decide in several phases."""
    steps = [{"dedup_passages": {"unit": "line"}}, {"dedup_suffix_array": {"threshold": 60}}]
    sources = [bench.jsonl(f"in-{seed}.jsonl", make_pages(80, seed)) for seed in range(2)]

    def run(number: int, out: str) -> dict[str, str]:
        bench.run(steps, sources[number], out=out, read=SMALL)
        return bench.bytes_of(out)

    alone = [run(number, f"alone-{number}") for number in range(2)]
    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(run, range(2), ("both-0", "both-1"))] == alone


def test_read_is_kept_and_rejected_in_every_stage(base):
    stages = base.outcome.stages
    assert [s.read for s in stages] == [150, stages[0].kept, stages[1].kept]
    assert all(s.read == s.kept + s.rejected for s in stages)
    totals = base.outcome.totals()
    assert totals.rejected > 20
    assert sorted(base.ids("base") + base.ids("base", "rejected")) == [
        f"d{i:04d}" for i in range(150)
    ]
    assert sum(totals.by_rule.values()) == totals.rejected


def test_the_manifest_counts_and_hashes_what_lies_beside_it(base):
    manifest = json.loads((base.folder / "base/corpus.json").read_text())
    digests = base.bytes_of("base")
    for name, entry in manifest["files"].items():
        assert digests[f"corpus/{name}"] == entry["sha256"]
    rows = base.rows("base")
    assert manifest["documents"] == len(rows)
    assert manifest["text_bytes"] == sum(len(r["text"].encode()) for r in rows)


def test_running_again_says_all_is_done(base):
    before = base.bytes_of("base")
    again = base.run(STEPS, base.folder / "in.jsonl", out="base", read=SMALL)
    assert again.nothing_new
    assert again.totals() == base.outcome.totals()
    assert base.bytes_of("base") == before


def test_a_changed_survivor_does_not_redo_the_first_stage(base):
    out = copied(base, "survivor")
    first, second = times(stage(out, 0)), times(stage(out, 1))
    assert first and second
    source = base.folder / "in.jsonl"
    sets = ("dedup_exact.survivor=first",)
    base.run(STEPS, source, out="survivor", read=SMALL, sets=sets)
    now = times(next((out / "stages").glob("00-*")))
    assert {n: t for n, t in now.items() if n in first} == first
    assert len(list((out / "stages").glob("01-*"))) == 2

    # The settings of before find everything that they left.
    before = {p: p.stat().st_mtime_ns for p in (out / "stages").rglob("*.parquet")}
    outcome = base.run(STEPS, source, out="survivor", read=SMALL)
    after = {p: p.stat().st_mtime_ns for p in (out / "stages").rglob("*.parquet")}
    assert after == before
    assert not outcome.nothing_new
    assert base.bytes_of("survivor") == base.bytes_of("base")


def test_a_changed_first_step_reuses_nothing(base):
    out = copied(base, "first")
    base.run(STEPS, base.folder / "in.jsonl", out="first", read=SMALL, sets=("c4.min_sentences=2",))
    assert len(list((out / "stages").glob("00-*"))) == 2


@pytest.mark.parametrize(
    "gone",
    ["corpus", "rejected/part-00000.parquet", "corpus/part-00001.parquet", "decisions.parquet"],
)
def test_missing_files_of_out_are_restored(base, gone):
    name = f"gone-{gone.replace('/', '-')}"
    path = copied(base, name) / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    outcome = base.run(STEPS, base.folder / "in.jsonl", out=name, read=SMALL)
    assert not outcome.nothing_new
    assert base.bytes_of(name) == base.bytes_of("base")


@pytest.mark.parametrize(
    "pattern",
    [
        "00-*/part-00001.kept.parquet",
        "00-*/part-00001.rejected.parquet",
        "00-*/part-00000.ids.parquet",
        "00-*/part-00000.sketch-*.parquet",
        "00-*/ids.parquet",
        "01-*/decisions-*.parquet",
        "01-*",
        "*",
    ],
)
def test_a_missing_stage_file_is_made_again_when_it_is_needed(base, pattern):
    name = "stage-" + pattern.replace("/", "-").replace("*", "x")
    out = copied(base, name)
    for path in list((out / "stages").glob(pattern)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(out / "corpus")
    base.run(STEPS, base.folder / "in.jsonl", out=name, read=SMALL)
    assert base.bytes_of(name) == base.bytes_of("base")


def test_another_input_file_is_read(base, make_pages):
    out = copied(base, "more")
    more = base.jsonl("more.jsonl", [{"id": "new", "text": make_pages(1, seed=9)[0]["text"]}])
    outcome = base.run(STEPS, base.folder / "in.jsonl", more, out="more", read=SMALL)
    assert outcome.totals().read == 151
    assert "new" in base.ids("more")
    assert out.is_dir()


def test_a_run_never_replaces_its_own_input(base):
    with pytest.raises(UsageError, match="lies in OUT"):
        base.run(["c4"], base.folder / "base", out="base")
    assert base.bytes_of("base")


def test_a_folder_named_corpus_that_no_run_wrote_is_left_alone(bench, make_pages):
    bench.jsonl("data/corpus/mine.jsonl", make_pages(3))
    source = bench.jsonl("in.jsonl", make_pages(3))
    with pytest.raises(UsageError, match="llmcurate did not write"):
        bench.run(["c4"], source, out="data")
    (bench.folder / "data/corpus.json").write_text('{"text": "mine"}')
    for name in ("corpus/mine.jsonl", "corpus.json"):
        assert (bench.folder / "data" / name).exists()
        with pytest.raises(UsageError, match=rf"llmcurate did not write .*data/{name[:6]}"):
            bench.run(["c4"], source, out="data")
        (bench.folder / "data" / name).unlink()
    bench.run(["c4"], source, out="data")


def test_an_out_that_is_a_file_is_wrong_use(bench, make_pages):
    source = bench.jsonl("in.jsonl", make_pages(3))
    with pytest.raises(UsageError, match="is a file"):
        bench.run(["c4"], source, out="in.jsonl")


def test_a_cut_changes_reasons_but_not_what_is_kept(bench):
    long = "The river runs past the old mill."
    rows = [{"id": "a", "text": "{ " + long}, {"id": "b", "text": "\n".join([long] * 5)}]
    source = bench.jsonl("in.jsonl", rows)
    together = bench.run(["c4", "c4"], source, out="together")
    apart = bench.run(["c4", "cut", "c4"], source, out="apart")
    assert (len(together.stages), len(apart.stages)) == (1, 2)
    assert bench.ids("together") == bench.ids("apart") == ["b"]
    (whole,), (cut,) = bench.rows("together", "rejected"), bench.rows("apart", "rejected")
    assert {r["step"] for r in whole["reasons"]} == {"c4", "c4#2"}
    assert {r["step"] for r in cut["reasons"]} == {"c4"}


def test_the_first_reason_is_primary_and_all_reasons_of_the_stage_are_kept(bench):
    source = bench.jsonl("in.jsonl", [{"id": "a", "text": "Lorem ipsum { is here."}])
    bench.run(["c4"], source)
    (row,) = bench.rows("out", "rejected")
    assert len(row["reasons"]) > 1
    first = row["reasons"][0]
    assert {k: row[k] for k in first} == first
    assert row["text"] == "Lorem ipsum { is here."


def test_a_rejected_text_is_the_text_as_it_entered_the_dropping_step(bench):
    kept = "The river runs past the old mill.\n" * 4
    text = kept + "no end mark here"
    source = bench.jsonl(
        "in.jsonl", [{"id": "a", "text": text}, {"id": "b", "text": text}, {"id": "c", "text": "x"}]
    )
    bench.run(["c4", "dedup_exact"], source)
    rejected = {r["id"]: r for r in bench.rows("out", "rejected")}
    assert rejected["c"]["text"] == "x"
    assert rejected["b"]["text"] == kept.rstrip("\n")
    assert rejected["b"]["step"] == "dedup_exact"
    assert rejected["b"]["edits"][0]["rule"]


def test_input_without_any_document_gives_empty_outputs(bench):
    source = bench.jsonl("in.jsonl", [])
    outcome = bench.run(STEPS, source)
    assert outcome.totals().read == 0
    assert bench.rows() == [] and bench.rows("out", "rejected") == []
    assert [p.name for p in (bench.folder / "out/corpus").iterdir()] == ["part-00000.parquet"]


def test_unreadable_records_are_counted_and_listed(bench):
    line = json.dumps({"id": "long", "text": "x" * 3000})
    source = bench.jsonl("in.jsonl", ['{"id": "a", "text": "b"}', "{broken", line])
    outcome = bench.run(["dedup_exact"], source, read={"max_record_bytes": 1000})
    totals = outcome.totals()
    assert (totals.read, totals.kept, totals.corrupt) == (2, 1, 1)
    notices = json.loads((bench.folder / "out/run.json").read_text())["notices"]
    size = "1 document rejected, larger than 1.00 kB: a higher read.max_record_bytes lets them in"
    assert size in notices
    (entry,) = map(json.loads, (bench.folder / "out/corrupt.jsonl").read_text().splitlines())
    assert (entry["file"], entry["offset"]) == (str(source), 25)
    (refused,) = bench.rows("out", "rejected")
    assert (refused["step"], refused["rule"]) == ("read", "line_too_long")
    assert (refused["value"], refused["threshold"]) == (len(line), 1000)
    assert refused["text"] is None

    bench.jsonl("in.jsonl", ['{"id": "a", "text": "b"}'])
    bench.run(["dedup_exact"], source)
    assert not (bench.folder / "out/corrupt.jsonl").exists()


def test_nothing_half_written_stays_in_a_finished_folder(base):
    names = [p.name for p in (base.folder / "base").rglob("*")]
    assert not [n for n in names if n.startswith(".")]


def test_a_changed_word_list_is_another_setting(bench):
    words = bench.folder / "words.txt"
    source = bench.jsonl("in.jsonl", [{"id": "a", "text": "The river runs past the mill. " * 4}])
    recipe = [{"c4": {"badwords": str(words), "min_sentences": 1}}]
    words.write_text("nothing\n")
    bench.run(recipe, source)
    assert bench.ids() == ["a"]
    words.write_text("mill\n")
    bench.run(recipe, source)
    assert bench.ids() == []


def test_a_list_that_is_not_there_is_named_before_anything_runs(bench):
    source = bench.jsonl("in.jsonl", [{"text": "x"}])
    with pytest.raises(UsageError, match=r"c4: cannot read .*nowhere\.txt: No such file"):
        bench.run([{"c4": {"badwords": str(bench.folder / "nowhere.txt")}}], source)


def test_skipped_files_are_counted_by_reason_and_empty_files_come_last(bench):
    bench.jsonl("in/a.jsonl", [{"text": "One."}])
    for name, held in {"b.jsonl": "", "c.eml": "x", "d.mbox": "y", "e.mbox": "z"}.items():
        (bench.folder / "in" / name).write_text(held)
    done = bench.command("dedup", bench.folder / "in", "-o", bench.folder / "out")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("note: skipped")]
    unknown, empty, known = line.split("; ")[1:]
    assert unknown.startswith("3: unknown format (2 .mbox, 1 .eml), such as ")
    assert empty.startswith("1: an empty file, such as ") and empty.endswith("b.jsonl")
    assert known.startswith("known are ") and "wacz" in known


def test_dropped_values_and_damage_are_counted_named_and_noted_once(bench):
    lines = [{"id": "a", "text": "b", "html": "x" * 3000}, *["{bad}"] * 230]
    source = bench.jsonl("in/a.jsonl", lines)
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page</p>"
    head = f"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: {len(page)}\r\n"
    digest = f"WARC-Block-Digest: sha1:{'0' * 40}\r\n\r\n"
    archive = source.with_name("b.warc")
    archive.write_bytes((head + digest).encode() + page + b"\r\n\r\n")
    read = {"max_carried_bytes": 1000}
    outcome = bench.run(["extract", "dedup_exact"], source.parent, read=read)
    totals = outcome.totals()
    assert (totals.read, totals.kept, totals.corrupt) == (2, 2, 230)
    assert (totals.left_out, totals.digests_differing) == (1, 1)
    named = [json.loads(x) for x in (bench.folder / "out/corrupt.jsonl").read_text().splitlines()]
    assert [entry["count"] for entry in named] == [1] * 100 + [130]
    record = json.loads((bench.folder / "out/run.json").read_text())
    assert record["stages"][0]["digests_differing"] == {"b.warc": 1}
    of_reading = [n for n in record["notices"] if "left out" in n or "digest" in n]
    assert len(of_reading) == 2
    assert "(html 1)" in of_reading[0] and "read.max_carried_bytes" in of_reading[0]
    assert "(b.warc 1); they were kept" in of_reading[1]
    report = unescape((bench.folder / "out/report.html").read_text())
    assert all(notice in report for notice in of_reading)

    bench.run(["extract"], source.parent, read=read | {"digests": "drop"}, out="strict")
    (refused,) = bench.rows("strict", "rejected")
    assert (refused["step"], refused["rule"]) == ("read", "digest_mismatch")
    assert refused["detail"] == "WARC-Block-Digest does not match the content"


EMPTY = {
    "Posts.xml": b'<?xml version="1.0"?><posts></posts>',
    "blank.jsonl": b"\n\n",
    "cut.jsonl": b"\n" * 9000,
    "header.csv": b"id,text\n",
    "nothing.jsonl.gz": gzip.compress(b""),
    "other.xml": b"<mediawiki><article>Text.</article></mediawiki>",
    "requests.warc": b"WARC/1.0\r\nWARC-Type: request\r\nContent-Length: 1\r\n\r\na\r\n\r\n",
}


@pytest.mark.lab
def test_files_that_gave_no_document_are_counted_and_the_first_is_named(bench):
    source = bench.jsonl("in/late.jsonl", [b"", *[b" " * 900] * 9, {"text": "at its end"}])
    for name, content in EMPTY.items():
        source.with_name(name).write_bytes(content)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), source.with_name("zero.parquet"))
    steps, read = ["extract", {"document_length": {"min": 1}}], {"partition_bytes": 1024}
    bench.run(steps, *sorted(source.parent.iterdir()), read=read)
    record = json.loads((bench.folder / "out/run.json").read_text())
    assert (record["totals"]["read"], record["totals"]["files_without_documents"]) == (1, 8)
    assert "8 files gave no document, first Posts.xml" in record["notices"]
    report = (bench.folder / "out/report.html").read_text()
    assert "8 files gave no document" in report
    header = source.with_name("header.csv")
    outcome = bench.run([{"tokenizer": {"vocab": 300}}], source, header, out="product", read=read)
    assert outcome.totals().files_without_documents == 1
    assert reading_notices(outcome) == ["1 file gave no document: header.csv"]
    bench.run(steps, source, out="whole", read=read)
    assert json.loads((bench.folder / "whole/run.json").read_text())["notices"] == []


def test_a_batch_of_a_later_stage_lies_in_one_row_group_of_both_files(tmp_path):
    rows = pa.table({"id": [str(i) for i in range(10)]})
    pq.write_table(rows, part_path(tmp_path, 0, "kept"), row_group_size=4)
    pq.write_table(pa.table({"_n": range(10)}), part_path(tmp_path, 0, "keys"), row_group_size=5)
    batches = list(read_kept(tmp_path, 0, 3))
    assert [len(batch) for batch in batches] == [3, 1, 1, 2, 1, 2]
    assert pa.concat_tables(batches).to_pydict() == {
        "id": rows["id"].to_pylist(),
        "_n": list(range(10)),
    }
