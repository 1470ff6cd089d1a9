"""Runs of `mix`: what a corpus of it holds, in which order, and what is said of it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter

import pyarrow.parquet as pq
import pytest

from curate.mix.settings import command_settings as options
from llmcurate.base.errors import UsageError

WORDS = "the house stands on a hill and the river below it runs clear and cold".split()


def rows(name, count, words=12, **more):
    return [
        {
            "id": f"{name}-{i}",
            "text": f"{name} {i} "
            + " ".join(WORDS[(i + k) % len(WORDS)] for k in range(words + i % 7)),
            **{k: v(i) if callable(v) else v for k, v in more.items()},
        }
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def bench(shared_bench):
    shared_bench.jsonl("web.jsonl", rows("web", 400, lang=lambda i: "en" if i % 4 else "th"))
    shared_bench.jsonl("wiki/a.jsonl", rows("wiki", 60, lang="en"))
    shared_bench.jsonl("wiki/b.jsonl", rows("more", 40, lang="lo"))
    return shared_bench


def mix(bench, out, *names, workers=1, before=(), after=(), **settings):
    names = names or ("web=web.jsonl", "wiki=wiki")
    sources = {}
    for name in names:
        key, _, path = name.partition("=")
        sources[key] = str(bench.folder / path)
    step = {"mix": {"sources": sources, "part_bytes": 8192, **settings}}
    return bench.run([*before, step, *after], out=out, workers=workers)


def record(outcome):
    return outcome.products[0]["mix"]


def by_name(outcome):
    return {row["name"]: row for row in record(outcome)["rows"]}


def test_documents_come_as_often_as_the_weights_say_and_none_is_lost(bench):
    outcome = mix(bench, "half", weights={"web": 1, "wiki": 1}, unit="documents", total=500)
    sources = by_name(outcome)
    assert [sources[n]["copies"] for n in ("web", "wiki")] == [250, 250]
    assert sources["wiki"]["epochs"] == 2.5 and sources["wiki"]["never"] == 0
    assert sources["web"]["never"] == 150
    copies = Counter((r["mix.source"], r["id"]) for r in bench.rows("half"))
    times = Counter((source, n) for (source, _), n in copies.items())
    assert times == {("web", 1): 250, ("wiki", 2): 50, ("wiki", 3): 50}
    manifest = json.loads((bench.folder / "half/corpus.json").read_text())
    assert manifest["documents"] == 500 and manifest["mix"]["seed"] == 0
    assert {row["name"]: row["quota"] for row in manifest["mix"]["rows"]} == {
        "web": 250,
        "wiki": 250,
    }
    assert outcome.totals().read == 500 and outcome.paths()["corpus"].endswith("half/corpus")


def test_no_window_of_an_epoch_repeats_a_document_and_sources_are_spread_over_all_parts(bench):
    mix(bench, "epochs", weights={"web": 1, "wiki": 1}, unit="documents", total=600)
    mixed = bench.rows("epochs")
    for source in ("web", "wiki"):
        source_rows = [r for r in mixed if r["mix.source"] == source]
        epochs = [r["mix.epoch"] for r in source_rows]
        assert epochs == sorted(epochs)
        for epoch in set(epochs):
            ids = [r["id"] for r in source_rows if r["mix.epoch"] == epoch]
            assert len(ids) == len(set(ids))
    parts = sorted((bench.folder / "epochs/corpus").glob("part-*.parquet"))
    assert len(parts) > 3
    for part in parts:
        sources = Counter(pq.ParquetFile(part).read()["mix.source"].to_pylist())
        assert 0.25 < sources["wiki"] / sources.total() < 0.75
    first = [r["id"] for r in mixed if r["mix.source"] == "wiki" and r["mix.epoch"] == 0]
    second = [r["id"] for r in mixed if r["mix.source"] == "wiki" and r["mix.epoch"] == 1]
    assert sorted(first) == sorted(second) and first != second


def test_workers_and_the_order_of_sources_change_no_byte(bench):
    settings = {"weights": {"web": 2, "wiki": 1}, "total": 9000}
    mix(bench, "one", **settings)
    mix(bench, "two", "wiki=wiki", "web=web.jsonl", workers=3, **settings)
    assert bench.bytes_of("one") == bench.bytes_of("two")


def test_the_order_of_documents_decides_nothing_and_the_seed_does(bench):
    bench.jsonl("turned.jsonl", rows("web", 400)[::-1])
    bench.jsonl("straight.jsonl", rows("web", 400))
    settings = {"unit": "documents", "total": 300}
    for out, name, seed in (("s", "straight", 0), ("t", "turned", 0), ("u", "straight", 1)):
        mix(bench, out, f"web={name}.jsonl", seed=seed, **settings)
    assert bench.ids("s") == bench.ids("t") != bench.ids("u")
    assert set(bench.ids("s")) != set(bench.ids("u"))


def test_products_after_a_mix_read_the_mix(bench):
    after = [{"export": {"compression": "none"}}]
    outcome = mix(bench, "chain", after=after, epochs={"wiki": 2.0, "web": 0.5}, unit="documents")
    lines = [
        json.loads(line)["id"]
        for path in sorted((bench.folder / "chain/jsonl").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert lines == bench.ids("chain") and len(lines) == 400
    assert [p["makes"] for p in outcome.products] == ["corpus", "export"]


def test_a_recipe_mixes_what_its_steps_keep_by_a_column_beside_the_corpus(bench):
    step = {"mix": {"by": "lang", "weights": "temperature", "floors": {"en": 0.5}, "unit": "bytes"}}
    keep = {"document_length": {"max": 17, "unit": "words"}}
    out = bench.run([keep, step, "export"], bench.folder / "web.jsonl", out="steps")
    groups = by_name(out)
    assert set(groups) == {"en", "th"}
    assert groups["en"]["share"] == pytest.approx(0.58, abs=0.1) and groups["en"]["share"] >= 0.5
    kept = len(bench.ids("steps"))
    assert kept == record(out)["total"]["documents"] < 400
    assert len(bench.ids("steps", "mix")) == record(out)["total"]["copies"]
    again = bench.run([keep, step, "export"], bench.folder / "web.jsonl", out="steps")
    assert again.nothing_new


def test_weights_by_language_take_documents_of_all_sources(bench):
    groups = by_name(mix(bench, "lang", by="lang", weights="unimax", unit="documents", total=180))
    assert {n: r["copies"] for n, r in groups.items()} == {"en": 60, "lo": 60, "th": 60}


def test_better_documents_are_repeated_more_and_unscored_ones_as_set(bench):
    bench.jsonl("scored.jsonl", rows("s", 90, score=lambda i: None if i < 30 else i / 90))
    quality = {"column": "score", "edges": [0.5, 0.8], "epochs": [0, 1, 3], "missing": 2}
    out = mix(bench, "scored", "s=scored.jsonl", quality=quality, unit="documents")
    copies = Counter(Counter(bench.ids("scored")).values())
    assert copies == {1: 27, 3: 18, 2: 30}
    (row,) = record(out)["rows"]
    assert [(b["name"], b["epochs"]) for b in row["buckets"]] == [
        ("below 0.5", 0.0),
        ("0.5 to 0.8", 1.0),
        ("from 0.8", 3.0),
        ("no score", 2.0),
    ]
    assert row["never"] == 15


def test_documents_outside_the_window_are_counted_by_reason(bench):
    dates = ["2019-12-31", "2020-01-01", "2023-06-30", "2023-07-01", None]
    bench.jsonl("dated.jsonl", rows("d", 50, date=lambda i: dates[i % 5]))
    window = {"since": "2020-01-01", "until": "2023-07-01", "undated": False}
    out = mix(bench, "dated", "d=dated.jsonl", unit="documents", **window)
    assert {r["date"].date().isoformat() for r in bench.rows("dated")} == set(dates[1:3])
    assert record(out)["outside"] == {
        "d": {"before the window": 10, "after the window": 10, "without a date": 10}
    }
    assert len(set(bench.ids("dated"))) == 20


def test_texts_that_sources_share_are_counted_and_the_mix_in_unique_tokens(bench):
    shared = rows("same", 10)
    bench.jsonl("a.jsonl", [*shared, *rows("a", 30)])
    bench.jsonl("b.jsonl", [*shared, *shared[:2], *rows("b", 8)])
    out = mix(bench, "overlap", "a=a.jsonl", "b=b.jsonl", epochs={"a": 2}, unit="documents")
    overlap = record(out)["overlap"]
    assert overlap["groups"] == ["a", "b"]
    assert overlap["documents"] == [[0, 10], [12, 2]]
    assert overlap["unique"] == overlap["unique_documents"] == 48
    assert record(out)["total"]["amount"] == 100
    page = (bench.folder / "overlap/report.html").read_text()
    assert 'id="mix"' in page and "Overlap by exact text" in page


def test_an_impossible_mix_is_refused_with_the_nearest_possible_one(bench):
    asked = [
        "mix",
        "web.jsonl",
        "wiki",
        "--weights",
        "wiki=1",
        "--total",
        "60000",
        "--unit",
        "bytes",
    ]
    done = bench.command(*asked, "-o", "never")
    assert done.returncode == 2 and not (bench.folder / "never/corpus").exists()
    assert done.stderr.splitlines()[-1].startswith("llmcurate: mix: it asks for 60,000 of wiki")
    assert "nearest possible: wiki 100.0 % (4.00 epochs)" in done.stderr
    assert "the nearest possible mix is" in done.stderr
    nearest = bench.command(*asked, "--nearest", "-o", "nearest", "--json", "-q")
    assert nearest.returncode == 0
    assert Counter(bench.ids("nearest")).most_common()[-1][1] == 4
    json.loads(nearest.stdout.splitlines()[-1])
    told = bench.command(*asked, "--nearest", "-o", "told")
    assert (told.stdout + told.stderr).count("never taken") == 1  # the head of the table
    assert "not the requested mix: it asks for 60,000 of wiki" in told.stderr


def test_a_dry_run_prints_the_table_and_writes_nothing(bench):
    done = bench.command(
        *("mix", "web.jsonl", "wiki", "--weights", "web=3,wiki=1", "-o", "dry", "--dry-run")
    )
    assert done.returncode == 0 and not (bench.folder / "dry").exists()
    assert "tokens (estimated: bytes / 4)" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[-5:-2]] == ["web", "wiki", "all"]


def test_a_killed_mix_leaves_no_corpus_and_the_next_run_is_whole(bench):
    settings = json.dumps(
        {"steps": [{"mix": {"sources": {"wiki": "wiki", "web": "web.jsonl"}, "part_bytes": 1024}}]}
    )
    (bench.folder / "kill.yaml").write_text(settings)
    bench.command("run", "kill.yaml", "-o", "whole")
    for wait in (0.7, 1.3):
        process = bench.start("run", "kill.yaml", "-o", "killed")
        time.sleep(wait)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    done = bench.command("run", "kill.yaml", "-o", "killed")
    assert done.returncode == 0, done.stderr
    assert bench.bytes_of("killed") == bench.bytes_of("whole")
    assert not list((bench.folder / "killed").rglob(".spill*"))


def test_a_mix_killed_before_its_manifest_stands_continues(bench):
    """The manifest comes last."""
    mix(bench, "whole")
    mix(bench, "cut")
    (bench.folder / "cut/corpus.json").unlink()
    mix(bench, "cut")
    assert bench.bytes_of("cut") == bench.bytes_of("whole")


def test_a_corpus_of_another_run_is_not_written_over(bench):
    bench.run(["document_length"], bench.folder / "web.jsonl", out="taken")
    with pytest.raises(UsageError, match="belongs to another corpus"):
        mix(bench, "taken")


def test_a_source_in_the_folder_that_is_written_is_refused(bench):
    mix(bench, "self")
    with pytest.raises(UsageError, match="lies in OUT"):
        mix(bench, "self", "self=self")


def test_web_pages_are_no_source(bench):
    (bench.folder / "page.html").write_text("<html><body>A page.</body></html>")
    with pytest.raises(UsageError, match="llmcurate extract"):
        mix(bench, "pages", "pages=page.html")


def test_hostile_input_is_counted_not_mixed(bench):
    lines = [*rows("ok", 5), b"{not json", b'{"id": "n", "text": "a\\u0000b"}', b'{"text": 3}']
    lines += [b'{"id": "u", "text": "\xff\xfe"}', b'{"id": "e", "text": ""}', b"x" * 100_000]
    bench.jsonl("bad.jsonl", lines)
    outcome = mix(bench, "bad", "bad=bad.jsonl", unit="documents")
    totals = outcome.totals()
    assert totals.kept == len(bench.ids("bad")) >= 6
    assert totals.corrupt + totals.rejected >= 2


def test_tokens_are_counted_by_the_tokenizer_that_is_named(bench):
    bench.run([{"tokenizer": {"vocab": 300}}], bench.folder / "wiki", out="tok")
    out = mix(bench, "counted", tokenizer=str(bench.folder / "tok"))
    counted = record(out)
    assert not counted["estimated"] and not out.products[0]["warnings"]
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(bench.folder / "tok/tokenizer.json"))
    texts = [json.loads(line)["text"] for line in (bench.folder / "web.jsonl").open()]
    assert {r["name"]: r["size"] for r in counted["rows"]}["web"] == sum(
        len(tokenizer.encode(t, add_special_tokens=False)) for t in texts
    )


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"weights": "much"}, "weights is 'much'"),
        ({"by": "no"}, "no column 'no'"),
        ({"since": "soon"}, "not a date"),
        ({"unit": "bytes", "tokenizer": "x"}, "needs unit: tokens"),
        ({"epochs": {"web": 2}, "total": 5}, "cannot be combined with weights"),
        ({"floors": {"web": 2}}, "between 0 and 1"),
        ({"tokenizer": "nowhere"}, "nowhere"),
        ({"quality": {"column": "x", "edges": [2, 1], "epochs": [1, 1, 1]}}, "ascend"),
        ({"quality": {"column": "lang", "edges": [2], "epochs": [1, 1]}}, "not scores"),
        ({"until": "1999-01-01", "undated": False}, "no text to mix"),
        ({"unit": "bytes", "total": 1}, "smaller than one document"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_a_one_line_error(bench, settings, message):
    with pytest.raises(UsageError, match=message) as error:
        mix(bench, "wrong", **settings)
    assert "\n" not in str(error.value)


def test_the_short_forms_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    parsed = options(
        ["data", "wiki=x/y.jsonl.zst", "x/books.jsonl.gz"],
        **{"weights": "web=80,wiki=20", "amounts": ["a=1e3"], "quality": "q.s:0.2,1:0,1,3"},
    )
    assert parsed["sources"] == {
        "data": ("data",),
        "wiki": ("x/y.jsonl.zst",),
        "books": ("x/books.jsonl.gz",),
    }
    assert parsed["weights"] == {"web": 80, "wiki": 20} and parsed["amounts"] == {"a": 1000}
    assert parsed["quality"] == {"column": "q.s", "edges": [0.2, 1], "epochs": [0, 1, 3]}
    for wrong in ({"weights": "a=b"}, {"caps": ["a=1,a=2"]}, {"quality": "q"}):
        with pytest.raises(UsageError):
            options(["data"], **wrong)
    with pytest.raises(UsageError, match="two sources are called 'data'"):
        options(["data", "other/data"])
