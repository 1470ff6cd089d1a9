"""Paragraphs as CCNet compares them, with `keep: one` and `keep: none`."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import documents
from llmcurate.base.errors import UsageError
from tests.curate.dedup.passage_runs import decide, decide_here
from tests.curate.dedup.reference_passages import ccnet, ccnet_key
from tests.curate.replayed_edits import replayed

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
CCNET: dict[str, Any] = {"unit": "paragraph", "keep": "none", "hash": "sha1-64"}
LINES = [
    *("Seen 12 times.", "seen 34 TIMES.", "“Seen 00 times.”", "Seen 123 times."),
    *("", " ", "…", "»", "\t", "\x07"),
    *("Héllo,  World 1234.\t— “ok”", "héllo,  world 0000. ok", "hello,  world 0000. ok"),
    *("Ο ΣΟΦΟΣ", "ο σοφος", "ο σοφοσ", "İstanbul", "i̇stanbul", "٣ cats", "１ cats", "0 cats"),
    *("tab\tbed", "tabbed", "A. B.", "(1) x", "[1] x", "日本語。", "日本語"),
]


def ccnet_rows(draw: random.Random, lines: list[str], count: int) -> list[dict[str, Any]]:
    """Pages of those lines, lines of their own, and lines that they repeat themselves."""
    rows = []
    for i in range(count):
        own = [
            f"Line {chr(97 + k)} of page {chr(97 + i % 26)}{chr(97 + i // 26)}" for k in range(3)
        ]
        picked = [
            draw.choice(lines if draw.random() < 0.3 else own) for _ in range(draw.randrange(8))
        ]
        rows.append({"id": f"d{i}", "url": f"https://{i}.test/", "text": "\n".join(picked)})
    return rows


def check(rows: list[dict[str, Any]], kept: dict[str, dict[str, Any]]) -> None:
    want = ccnet({r["id"]: r["text"] for r in rows})
    for row in rows:
        if row["text"]:
            assert (row["id"] in kept) == (row["id"] in want), row
        if row["id"] in want:
            kept_row = kept[row["id"]]
            assert kept_row["text"] == want[row["id"]]
            assert replayed(row["text"], kept_row.get("edits")) == want[row["id"]]


@pytest.mark.parametrize("seed", range(3))
def test_the_recipe_does_what_ccnet_does(bench, seed):
    rows = ccnet_rows(random.Random(seed), LINES, 40)
    check(rows, decide(bench, rows, parts=3, **CCNET))


texts = st.lists(st.sampled_from(LINES) | st.text(max_size=4), max_size=5).map("\n".join)


@settings(deadline=None, max_examples=60)
@given(st.lists(texts, min_size=1, max_size=6))
def test_exactly_the_lines_that_ccnet_keeps_are_kept(values):
    rows = [{"id": f"d{i}", "text": text} for i, text in enumerate(values)]
    check(rows, decide_here(rows, **CCNET))


def mutated(draw: random.Random, line: str) -> str:
    """The line as another site may have it; some of these are copies for CCNet, some are not."""
    at = draw.randrange(len(line) + 1)
    return draw.choice(
        [
            line.upper(),
            f"  {line} ",
            f"{line[:at]}{draw.choice('…“»、')}{line[at:]}",
            f"{line[:at]}{draw.choice('.,é')}{line[at:]}",
            "".join(draw.choice("0123456789") if c.isdecimal() else c for c in line),
        ]
    )


def test_mutated_real_paragraphs_match_where_ccnets_do(bench):
    paths = sorted((SHARED / "corpora").glob("longtext/*.jsonl.zst"))
    if not paths:
        pytest.skip("no ../shared/corpora/longtext")
    import zstandard

    draw = random.Random(5)
    lines = []
    for path in paths:
        with path.open("rb") as file:
            reader = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
            text = json.loads(next(reader))["text"]
        lines += draw.sample(text.split("\n"), min(60, text.count("\n")))
    copies = [mutated(draw, draw.choice(lines)) for _ in range(len(lines))]
    rows = ccnet_rows(draw, [*lines, *copies], 300)
    check(rows, decide(bench, rows, parts=2, **CCNET))


def test_which_hash_compares_changes_nothing():
    rows = ccnet_rows(random.Random(9), LINES, 30)
    outputs = [
        {n: r["text"] for n, r in decide_here(rows, **{**CCNET, "hash": name}).items()}
        for name in ("murmur3-128", "xxh3-128", "blake2b-128", "sha1-64")
    ]
    assert all(texts == outputs[0] for texts in outputs)


def test_ccnets_key_is_eight_bytes_of_sha1_read_as_a_little_endian_number():
    from curate.dedup.passages.kernels import passages

    lines = [line for line in LINES if line]
    docs = documents({"id": [str(i) for i in range(len(lines))], "text": lines})
    table = passages(docs, "paragraph", 1, "sha1-64", blank=True)
    assert table.keys[:, 1].tolist() == [ccnet_key(line) for line in lines]
    assert not table.keys[:, 0].any()


def test_a_document_too_large_for_positions_has_no_passages():
    from curate.dedup.passages.kernels import passages

    docs = documents({"id": ["a", "b", "c"], "text": ["One\nx", "One\ntwo", ""]})
    table = passages(docs, "line", 1, most_bytes=5)
    assert table.rows.tolist() == [0, 2, 2, 2]


@settings(deadline=None, max_examples=60)
@given(st.lists(texts, min_size=1, max_size=6), st.sampled_from(["first", "longest", "c4"]))
def test_keep_one_keeps_each_paragraph_once_and_all_blank_lines(values, policy):
    rows = [{"id": f"d{i}", "text": text} for i, text in enumerate(values)]
    kept = decide_here(rows, unit="paragraph", survivor=policy)
    nothing = ccnet_key("")

    def keys(texts: list[str]) -> list[int]:
        line_keys = [ccnet_key(line) for text in texts for line in text.split("\n")]
        return [key for key in line_keys if key != nothing]

    kept_keys = keys([row["text"] for row in kept.values()])
    assert len(kept_keys) == len(set(kept_keys))
    assert set(kept_keys) == set(keys(values))
    for row in rows:
        if row["id"] in kept:
            assert kept[row["id"]]["text"].count("\n\n") >= row["text"].count("\n\n\n")


@pytest.mark.parametrize("unit", ["line", "sentences", "paragraph"])
def test_keep_none_cuts_every_passage_that_occurs_in_two_documents(bench, unit):
    shared = "Shared one. Shared two. Shared three."
    rows = [
        {"id": "a", "text": f"{shared}\nOnly a here."},
        {"id": "b", "text": f"Only b here.\n{shared}"},
        {"id": "c", "text": "Twice in c. And so. Is this.\nTwice in c. And so. Is this.\nOnly c."},
    ]
    settings = {"unit": unit, "keep": "none", "min_sentences": 0, "min_words": 0}
    kept = decide(bench, rows, **settings)
    assert kept["a"]["text"] == "Only a here." and kept["b"]["text"] == "Only b here."
    assert kept["c"]["text"].count("Twice in c.") == 1 and "Only c." in kept["c"]["text"]
    decisions = bench.decisions("out/run")
    lost = [d for d in decisions if d["id"] in "ab"]
    assert {(d["id"], d["partner_id"], d["kept_id"]) for d in lost} == {
        ("a", "b", None),
        ("b", "a", None),
    }
    assert {d["kept_id"] for d in decisions if d["id"] == "c"} == {"c"}


@pytest.mark.parametrize("keep", ["one", "none"])
def test_decisions_are_the_same_for_one_worker_and_two(bench, keep):
    rows = ccnet_rows(random.Random(11), LINES, 60)
    digests = []
    for workers in (1, 2):
        decide(bench, rows, f"{workers}", 4, workers, unit="paragraph", keep=keep)
        files = bench.bytes_of(f"{workers}/run").items()
        digests.append({name: digest for name, digest in files if name.endswith(".parquet")})
    assert digests[0] == digests[1]


def test_a_document_without_a_line_left_is_dropped_with_its_text(bench):
    rows = [{"id": n, "text": "All of it 1.\nis shared"} for n in "ab"]
    rows.append({"id": "c", "text": "ALL OF IT 2.\nIs here"})
    assert set(decide(bench, rows, unit="paragraph", keep="none")) == {"c"}
    gone = bench.rows("out/run", "rejected")
    assert {(r["id"], r["rule"], r["text"]) for r in gone} == {
        (n, "nothing_left", rows[0]["text"]) for n in "ab"
    }


def test_a_final_blank_line_is_not_taken_for_the_next_documents_first_line(bench):
    rows = [
        {"id": f"d{i}", "text": t} for i, t in enumerate(["one\n", "two", "", "three\n", "\nx"])
    ]
    check(rows, decide(bench, rows, **CCNET))


def test_explain_says_that_no_copy_stays(bench):
    rows = [{"id": n, "text": f"Shared here.\nOnly {n}."} for n in "ab"]
    decide(bench, rows, unit="paragraph", keep="none")
    done = bench.command("explain", "a", "--in", "out/run")
    assert (
        "  passages:paragraph: bytes 0 to 12 of its input also occur in b; no duplicate is kept"
        ' (cluster 0): "Shared here."\n' in done.stdout
    ), done.stdout + done.stderr


def test_the_report_counts_what_went_and_says_that_no_copy_was_kept(bench):
    rows = [{"id": n, "text": f"Shared here.\nOnly {n}.\nOnly {n}."} for n in "abc"]
    decide(bench, rows, unit="paragraph", keep="none")
    record = json.loads((bench.folder / "out/run/run.json").read_text())
    decided = next(s["decided"] for s in record["stages"] if s.get("decided"))
    counts = {k: decided[k] for k in ("clusters", "members", "dropped")}
    assert counts == {"clusters": 4, "members": 9, "dropped": 6}
    assert decided["notes"] == [
        "1 passage occurred in more than one document; no occurrence was kept (keep: none)."
    ]


def test_paragraphs_on_the_command_line(bench):
    rows = [{"id": n, "text": f"Shared 1.\nOnly {n}."} for n in "ab"]
    source = bench.jsonl("in.jsonl", rows)
    options = ["--method", "paragraphs", "--keep", "none", "--hash", "sha1-64", "--workers", "1"]
    done = bench.command("dedup", source, "-o", "o", *options)
    assert done.returncode == 0, done.stderr
    assert [r["text"] for r in bench.rows("o")] == ["Only a.", "Only b."]
    done = bench.command("dedup", source, "-o", "p", *options[:-4], "--hash", "sha256")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "murmur3-128" in done.stderr


def test_an_unknown_choice_is_wrong_use(bench):
    with pytest.raises(UsageError, match="keep"):
        decide(bench, [{"text": "x"}], unit="paragraph", keep="two")
