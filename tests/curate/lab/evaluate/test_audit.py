"""`llmcurate dedup audit`: Lee et al.'s tables against plain Python."""

from __future__ import annotations

import json
import random

import pytest

from tests.curate.similarity import near_copy

WORDS = [a + b + c for a in "bdfglm" for b in "aeiou" for c in "nrst"]
WINDOW = 200


def prose(draw, words):
    return " ".join(draw.choices(WORDS, k=words))


def covered(texts, others, same):
    """Characters of texts in windows of 200 that stand in others (elsewhere, where these are the
    same documents)."""
    seen: dict[str, list[tuple[int, int]]] = {}
    for n, text in enumerate(others):
        for i in range(len(text) - WINDOW + 1):
            seen.setdefault(text[i : i + WINDOW], []).append((n, i))
    total = 0
    for n, text in enumerate(texts):
        marks = [False] * len(text)
        for i in range(len(text) - WINDOW + 1):
            places = seen.get(text[i : i + WINDOW], [])
            if any(not same or place != (n, i) for place in places):
                marks[i : i + WINDOW] = [True] * WINDOW
        total += sum(marks)
    return total


@pytest.fixture(scope="module")
def sides(shared_bench):
    """Training and validation texts: copies, near copies, and passages within other text."""
    draw = random.Random(3)
    train = [prose(draw, 150) for _ in range(16)]
    train.append(near_copy(train[0], 0.9, "other"))
    train.append(f"{prose(draw, 60)} {train[1][100:500]} {prose(draw, 60)}")
    val = [prose(draw, 150) for _ in range(5)]
    val.append(near_copy(train[0], 0.92, "another"))
    val.append(f"{prose(draw, 80)} {train[2][50:650]} {prose(draw, 80)}")
    val.append(train[3])
    for name, texts in (("train", train), ("val", val)):
        rows = [{"id": f"{name}{n}", "text": text} for n, text in enumerate(texts)]
        shared_bench.jsonl(f"{name}.jsonl", rows)
    shared_bench.jsonl("all.jsonl", [
        {"id": f"{name}{n}", "text": text}
        for name, texts in (("train", train), ("val", val)) for n, text in enumerate(texts)
    ])  # fmt: skip
    return shared_bench, train, val


@pytest.fixture(scope="module")
def audited(sides):
    bench, _, _ = sides
    done = bench.command("dedup", "audit", "train.jsonl", "--val", "val.jsonl", "-o", "a", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_near_duplicates_are_counted_on_each_side_and_across(audited):
    counts = {key: (share["part"], share["whole"]) for key, share in audited["near"].items()}
    assert counts["train in train"] == (2, 18)  # a text and its near copy
    assert counts["train in val"] == (3, 18)  # and a text that is copied whole
    assert counts["val in train"] == (2, 8)
    assert counts["val in val"] == (0, 8)
    assert (audited["clusters"], audited["largest"]) == (2, 3)


def test_text_in_passages_is_counted_as_plain_python_does(sides, audited):
    _, train, val = sides
    parts = {key: share["part"] for key, share in audited["exact"].items()}
    assert parts["val in train"] == covered(val, train, False) > 1000
    assert parts["train in val"] == covered(train, val, False)
    assert parts["train in train"] == covered(train, train, True) > 800
    assert audited["exact"]["val in train"]["whole"] == sum(map(len, val))


def test_the_longest_match_is_the_whole_of_it(sides, audited):
    _, train, _ = sides
    match = audited["longest"]["val"]
    assert (match["first"], match["second"]) == ("val7", "train3")
    assert match["bytes"] == len(train[3]) and match["text"] == train[3][:200]
    assert audited["longest"]["train"]["bytes"] >= 400


@pytest.mark.slow  # those of a corpus are audited above
def test_the_sides_of_token_shards_are_audited_alike(sides, audited):
    bench, _, val = sides
    import pyarrow as pa
    import pyarrow.parquet as pq

    (bench.folder / "shards/val").mkdir(parents=True)
    ids = pa.table({"id": [f"val{n}" for n in range(len(val))]})
    pq.write_table(ids, bench.folder / "shards/val/documents-00000.parquet")
    done = bench.command("dedup", "audit", "all.jsonl", "--shards", "shards", "-o", "b", "--json")
    same = ("documents", "near", "exact", "longest")
    assert {k: json.loads(done.stdout)[k] for k in same} == {k: audited[k] for k in same}


def test_unknown_sides_are_a_one_line_error(sides):
    bench, _, _ = sides
    for options, says in (
        (("--val", "val.jsonl", "--shards", "s"), "not both"),
        (("--shards", "nowhere"), "no validation shards"),
    ):
        done = bench.command("dedup", "audit", "train.jsonl", *options, "-o", "c")
        assert done.returncode == 2 and says in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
