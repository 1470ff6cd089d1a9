"""Repeated passages: which match, which one is kept, and the recorded decisions."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dedup.passages.kernels import UNITS, piece_keys
from llmcurate.base.errors import UsageError
from tests.curate.dedup.passage_runs import decide, decide_here
from tests.curate.dedup.reference_passages import c4_lines, cut_sentences, key_of, md5, murmur3
from tests.curate.replayed_edits import replayed

LINES = [
    *("Subscribe to our letter today.", "subscribe to our letter TODAY. ", "Read more.", "", "  "),
    *(
        "The mill stands by the river.",
        "Ὀδυσσεύς ἦν ΣΟΦΟΣ.",
        "ὀδυσσεύς ἦν σοφος.",
        "İstanbul is big.",
    ),
    *("日本語の文章です。", "A\rB", "x", "\x00 y", "Ⅷ and ⅷ", "ⅷ AND Ⅷ"),
]
OPEN = {"min_sentences": 0, "min_words": 0}


def pages_of(draw: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"d{i}",
            "url": f"https://host-{i}.test/{draw.random()}",
            "text": "\n".join(
                draw.choice(LINES) if draw.random() < 0.7 else f"Page {i}, line {k}."
                for k in range(draw.randrange(9))
            ),
        }
        for i in range(count)
    ]


def test_keys_are_equal_where_c4s_are_and_are_murmur3_of_the_folded_line():
    data = [line.encode() for line in LINES]
    ends = np.cumsum([len(d) for d in data])
    starts = ends - [len(d) for d in data]
    buffer = np.frombuffer(bytearray().join(data), np.uint8)
    keys, written = piece_keys(buffer, starts, ends, UNITS["line"])
    high, low = keys[:, 0], keys[:, 1]
    for k, line in enumerate(LINES):
        assert written[k] == bool(line.strip())
        if written[k]:
            assert (high[k], low[k]) == murmur3(line.strip().lower().encode())
            for other in range(len(LINES)):
                same = key_of(line) == key_of(LINES[other])
                assert same == ((high[k], low[k]) == (high[other], low[other]))


@pytest.mark.parametrize("seed", range(4))
def test_lines_are_cut_as_c4s_code_cuts_them(bench, seed):
    rows = pages_of(random.Random(seed), 30)
    want = c4_lines({r["url"]: r["text"] for r in rows})
    kept = decide(bench, rows, parts=3, **OPEN)
    for row in rows:
        if not row["text"]:
            continue
        changed = want[row["url"]] != row["text"]
        if changed and not want[row["url"]].strip():
            assert row["id"] not in kept
        else:
            assert kept[row["id"]]["text"] == want[row["url"]]
            assert replayed(row["text"], kept[row["id"]]["edits"]) == want[row["url"]]


texts = st.lists(st.sampled_from(LINES) | st.text(max_size=6), max_size=6).map("\n".join)


@settings(deadline=None, max_examples=60)
@given(st.lists(texts, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_no_line_remains_twice_and_spans_replay_to_the_output(values, draw):
    rows = [
        {"id": f"d{i}", "text": t, "url": draw.choice([f"u{i}", None, ""])}
        for i, t in enumerate(values)
    ]
    kept = decide_here(rows, **OPEN)
    seen = set()
    for row in rows:
        if row["id"] not in kept:
            continue
        text = kept[row["id"]]["text"]
        assert replayed(row["text"], kept[row["id"]].get("edits")) == text
        for line in text.split("\n"):
            assert not line.strip() or key_of(line) not in seen
            seen.add(key_of(line))
    # Every line still stands somewhere, unless the document that keeps it holds nothing else.
    assert seen >= {key_of(line) for t in values for line in t.split("\n") if line.strip()}


def test_bytes_do_not_depend_on_workers_or_on_the_order_of_files(bench):
    rows = pages_of(random.Random(7), 200)
    for row in rows[::3]:
        row["url"] = None
    names = [bench.jsonl(f"in-{k}.jsonl", rows[k::4]) for k in range(4)]
    for unit in ("line", "sentences"):
        outputs = []
        for i, (order, workers) in enumerate(((1, 1), (1, 2), (-1, 2))):
            out = f"{unit}-{i}"
            steps = [{"dedup_passages": {"unit": unit, "min_words": 0, "min_sentences": 1}}]
            bench.run(steps, *names[::order], out=out, workers=workers)
            outputs.append(bench.bytes_of(out))
        if unit == "line":
            assert any(d["partner_id"] for d in bench.decisions(f"{unit}-0"))
        assert outputs[0] == outputs[1]
        sets = [
            sorted((r["id"], r["text"], str(r["edits"])) for r in bench.rows(f"{unit}-{i}"))
            for i in (0, 2)
        ]
        assert sets[0] == sets[1]
        decided = [sorted(str(d) for d in bench.decisions(f"{unit}-{i}")) for i in (0, 2)]
        assert decided[0] == decided[1]


def test_the_least_md5_of_the_url_keeps_a_line_and_a_page_without_url_goes_by_its_id(bench):
    line = "This line stands on every page."
    rows = [{"id": f"d{i}", "url": f"u{i}" if i % 2 else None, "text": line} for i in range(8)]
    kept = decide(bench, rows, **OPEN)
    keys = {r["id"]: md5(r["url"] or r["id"]) for r in rows}
    assert set(kept) == {min(keys, key=keys.__getitem__)}


def test_other_policies_choose_by_document(bench):
    rows = [
        {"id": "a", "text": "Same line.\nShort.", "date": "2020-01-02T00:00:00Z"},
        {"id": "b", "text": "Same line.\nA longer line.", "date": "2020-01-01T00:00:00Z"},
    ]
    for policy, text in (("longest", "Short."), ("newest", rows[0]["text"])):
        kept = decide(bench, rows, out=policy, survivor=policy, **OPEN)
        assert kept["a"]["text"] == text


def test_decisions_name_the_keeper_and_the_bytes(bench):
    rows = [
        {"id": "a", "url": "u1", "text": "é own.\nShared line.\nShared line."},
        {"id": "b", "url": "u2", "text": "Shared LINE.\nother."},
    ]
    first, second = sorted(rows, key=lambda r: md5(r["url"]))
    decide(bench, rows, **OPEN)
    decisions = bench.decisions("out/run")
    assert {d["kept_id"] for d in decisions} == {first["id"]}
    assert {d["cluster"] for d in decisions} == {0} and {d["method"] for d in decisions} == {
        "passages:line"
    }
    spans = {(d["id"], d["span_start"]): d for d in decisions}
    assert set(spans) == {("a", 8), ("a", 21), ("b", 0)}
    keeper = spans[(first["id"], 8 if first["id"] == "a" else 0)]
    assert (keeper["partner_id"], keeper["similarity"]) == (None, None)
    for d in decisions:
        if d is not keeper:
            assert (d["partner_id"], d["similarity"]) == (first["id"], 1.0)
        text = next(r["text"] for r in rows if r["id"] == d["id"]).encode()
        assert text[d["span_start"] : d["span_end"]].lower() == b"shared line."
    assert second["id"] in {d["id"] for d in decisions}


def test_a_document_that_lost_lines_and_has_too_little_left_is_dropped_with_its_text(bench):
    shared = "One. Two. Three."
    rows = [
        {"id": "keeper", "text": f"{shared}\nOwn words here. And more."},
        {"id": "all-gone", "text": shared},
        {"id": "few", "text": f"{shared}\nOne sentence left. Two left."},
        {"id": "enough", "text": f"{shared}\nLeft one. Left two. Left three."},
        {"id": "short-but-whole", "text": "Only one."},
    ]
    kept = decide(bench, rows, survivor="first")
    assert set(kept) == {"keeper", "enough", "short-but-whole"}
    assert kept["enough"]["text"] == "Left one. Left two. Left three."
    gone = {r["id"]: r for r in bench.rows("out/run", "rejected")}
    texts = {r["id"]: r["text"] for r in rows}
    assert {n: (r["rule"], r["value"], r["threshold"]) for n, r in gone.items()} == {
        "all-gone": ("nothing_left", 0.0, 1.0),
        "few": ("few_sentences", 2.0, 3.0),
    }
    assert all(r["text"] == texts[n] and not r["edits"] for n, r in gone.items())


def test_blank_lines_and_empty_documents_match_nothing(bench):
    rows = [
        {"id": "a", "text": "\n\nHere.\n\n"},
        {"id": "e", "text": ""},
        {"id": "b", "text": "There.\n\n \n"},
        {"id": "c", "text": "\nThere.\n\nElse."},
    ]
    kept = decide(bench, rows, survivor="first", **OPEN)
    assert {n: r["text"] for n, r in kept.items() if r["text"]} == {
        "a": "\n\nHere.\n\n",
        "b": "There.\n\n \n",
        "c": "\n\nElse.",
    }


WORDS = st.sampled_from(["Ask.", "ASK.", "Ben!", "Cut?", "Dig.", "Elk.", "Fog."])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=9), min_size=1, max_size=6), st.integers(1, 3))
def test_spans_of_sentences_are_cut_as_the_reference_cuts_them(pages, span):
    draw = random.Random(len(pages))
    rows = [
        {"id": f"d{i}", "text": "".join(s + draw.choice((" ", "\n", " \n ")) for s in page)}
        for i, page in enumerate(pages)
    ]
    want = cut_sentences({f"d{i}": page for i, page in enumerate(pages)}, span)
    kept = decide_here(rows, unit="sentences", span=span, survivor="first", **OPEN)
    for i, row in enumerate(rows):
        name = row["id"]
        if not want[name]:
            assert name not in kept
            continue
        text = kept[name]["text"]
        assert replayed(row["text"], kept[name].get("edits")) == text
        assert text.split() == " ".join(want[name]).split()
        if len(want[name]) < len(pages[i]):
            assert text == text.strip()


def test_a_cut_sentence_leaves_the_line_ends_around_it(bench):
    rows = [
        {"id": "a", "text": "Bee. Cat. Dog."},
        {"id": "b", "text": "Ant.  Bee. Cat. Dog.\nElk.\nBee. Cat.\nDog. Fox.\n"},
    ]
    kept = decide(bench, rows, unit="sentences", survivor="first", **OPEN)
    assert kept["b"]["text"] == "Ant.\nElk.\nFox."
    rules = [e["rule"] for e in kept["b"]["edits"]]
    assert rules == ["global_duplicate", "global_duplicate", "white_space"]


def test_fifty_words_must_be_left_of_a_document_that_lost_sentences(bench):
    shared = "This goes. That goes. It all goes."
    remaining = " ".join(["One more of these words."] * 9 + ["Four words are here"])
    rows = [
        {"id": "a", "text": shared},
        {"id": "b", "text": f"{shared} {remaining.replace('One', 'Two')}"},
        {"id": "c", "text": f"{shared} Three of these. {remaining.replace('more', 'less')} too."},
    ]
    kept = decide(bench, rows, unit="sentences", survivor="first", span=3)
    gone = bench.rows("out/run", "rejected")
    assert set(kept) == {"a"}
    assert {r["rule"] for r in gone} == {"few_words"}


@pytest.mark.parametrize(
    ("lang", "sentence", "join"),
    [
        ("zh", "我们今天在学校学习历史{}。", ""),
        ("ja", "わたしたちは学校で歴史を学びます{}。", ""),
        ("tha_Thai", "เราไปโรงเรียนวันนี้เพื่อเรียน{}", " "),
        ("yue", "我哋今日喺學校讀歷史{}！", ""),
    ],
)
def test_sentences_and_words_left_are_those_of_the_language(bench, lang, sentence, join):
    letters = "กขคงจฉชซญดตถท" if lang == "tha_Thai" else "天地玄黃宇宙洪荒日月盈昃辰"
    own = [sentence.format(a + b) for a in letters for b in letters]
    shared = own[120:124]
    texts = (own[:40] + shared, own[40:80] + shared, own[80:120])
    rows = [
        {"id": f"d{k}", "lang": lang, "url": f"https://{k}.test/", "text": join.join(text)}
        for k, text in enumerate(texts)
    ]
    kept = decide(bench, rows, unit="sentences")
    (cut,) = (row for row in kept.values() if row["dedup_passages.cut"])
    assert len(kept) == 3 and cut["dedup_passages.cut"] == 4
    assert cut["dedup_passages.sentences_left"] == 40
    assert cut["dedup_passages.words_left"] > 200


def test_explain_says_what_was_cut_and_who_keeps_it(bench):
    rows = [
        {"id": "a", "text": "Shared here.\nOne. Two. Six."},
        {"id": "b", "text": "Shared here.\nTen! Ten! Ten!\nTen! Ten! Ten!"},
    ]
    decide(bench, rows, survivor="first", min_sentences=3)
    done = bench.command("explain", "b", "--in", "out/run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line in (
        "passages:line: bytes 0 to 12 of its input are a duplicate; the one in a is kept",
        'passages:line: bytes 28 to 42 of its input occur earlier in it (cluster 1): "Ten! Ten!',
        'cut by dedup_passages.global_duplicate: bytes 0 to 13 of its input: "Shared here."',
    ):
        assert any(shown.startswith(f"  {line}") for shown in lines), done.stdout
    done = bench.command("explain", "a", "--in", "out/run")
    assert "bytes 0 to 12 of its input are the duplicate that is kept (cluster 0)" in done.stdout


def test_the_command_line_knows_lines_and_sentences(bench):
    rows = [
        {"id": f"d{i}", "text": f"All the same. Yes. No.\nOwn {i}. Two. Three."} for i in range(3)
    ]
    source = bench.jsonl("in.jsonl", rows)
    for method in ("lines", "sentences"):
        done = bench.command(
            "dedup", source, "-o", method, "--method", method, "--min-words", "3", "--workers", "1"
        )
        assert done.returncode == 0, done.stderr
        assert sorted(r["text"] for r in bench.rows(method))[0].startswith("All")
        assert sum("All" in r["text"] for r in bench.rows(method)) == 1
        assert len(bench.rows(method)) == 3
    for wrong in (
        ["--method", "lines", "--key", "url"],
        ["--method", "exact", "--span", "3"],
        ["--method", "lines", "--span", "3"],
        ["--method", "sentences", "--verify", "0.5"],
    ):
        done = bench.command("dedup", source, "-o", "no", *wrong)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_span_belongs_to_sentences(bench):
    with pytest.raises(UsageError, match="span"):
        decide(bench, [{"text": "x"}], span=2)
