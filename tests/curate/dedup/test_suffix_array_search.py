"""The search index: counts, positions, longest shared passages, damage, the command line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dedup.suffix_array.search import find, longest
from curate.dedup.suffix_array.search_index import SearchIndex, _digest, find_folder
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.dedup.search_indexes import index_of

CHECK = settings(deadline=None, max_examples=60)
TEXTS = st.lists(st.text("abé日\x00ÿ", max_size=12), max_size=6)


def occurrences(texts: list[str], phrase: str) -> list[tuple[str, int]]:
    """Also those that overlap."""
    wanted = phrase.encode()
    data = [t.encode() for t in texts]
    return [
        (f"d{i}", k)
        for i, d in enumerate(data)
        for k in range(len(d))
        if d[k : k + len(wanted)] == wanted
    ]


@CHECK
@given(TEXTS, st.text("abé日\x00ÿ", min_size=1, max_size=4), st.sampled_from([1, 60, 1 << 20]))
def test_every_occurrence_is_counted_and_shown_in_the_order_of_the_corpus(texts, phrase, room):
    with tempfile.TemporaryDirectory() as folder:
        index = index_of(Path(folder), texts, room)
        matches = find(index, phrase, limit=1000)
        want = occurrences(texts, phrase)
        assert matches.count == len(want)
        assert [(h.document, h.byte) for h in matches.hits] == want
        few = find(index, phrase, limit=2)
        assert few.count == len(want) and few.hits == matches.hits[:2]
        for hit in matches.hits:
            whole = texts[int(hit.document[1:])]
            assert hit.match == phrase and hit.before + hit.match + hit.after == whole


@CHECK
@given(TEXTS, st.text("abé日ÿ", min_size=1, max_size=15), st.sampled_from([1, 60, 1 << 20]))
def test_the_longest_shared_passage_is_the_longest_whichever_the_chunk(texts, text, room):
    best = (0, 0)
    for a in range(len(text)):
        for z in range(a + 1, len(text) + 1):
            size = len(text[a:z].encode())
            if size > best[1] and any(text[a:z] in t for t in texts):
                best = (len(text[:a].encode()), size)
    with tempfile.TemporaryDirectory() as folder:
        passage = longest(index_of(Path(folder), texts, room), text, limit=1000)
    assert (passage.byte, passage.bytes) == best
    if best[1]:
        assert passage.text.encode() == text.encode()[passage.byte : passage.byte + passage.bytes]
        assert [(h.document, h.byte) for h in passage.hits] == occurrences(texts, passage.text)


def test_a_match_never_reaches_from_one_document_into_the_next(tmp_path):
    index = index_of(tmp_path, ["one two", "three four"])
    assert find(index, "twothree").count == 0
    assert longest(index, "twothree").text == "three"


def test_context_stops_at_documents_and_shows_whole_characters(tmp_path):
    index = index_of(tmp_path, ["日本語の文章", "中文"])
    hit = find(index, "語", context=4).hits[0]
    assert (hit.before, hit.match, hit.after) == ("本", "語", "の")
    hit = find(index, "文", limit=5, context=100).hits[1]
    assert (hit.document, hit.before, hit.after) == ("d1", "中", "")


def test_phrases_that_cannot_be_searched_for(tmp_path):
    index = index_of(tmp_path, ["text"])
    for ask in (find, longest):
        with pytest.raises(UsageError):
            ask(index, "")
        with pytest.raises(UsageError, match="UTF-8"):
            ask(index, "\udcff")


def test_a_chunk_that_was_sorted_before_a_kill_is_kept_only_for_the_same_text(tmp_path):
    texts = ["some words here", "and more words there", "last words"]
    index_of(tmp_path, texts, sort_bytes=1, batch=1)
    whole = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    (tmp_path / "search.json").unlink()
    (tmp_path / "search-00001.text").write_bytes(b"x" * 21)
    (tmp_path / "search-00002.order").unlink()
    index_of(tmp_path, texts, sort_bytes=1, batch=1)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == whole


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "search-00000.order").unlink(), "missing"),
        (lambda d: (d / "search-00000.text").write_bytes(b"x"), "1 bytes instead of"),
        (lambda d: (d / "search.json").write_text("{"), "not an index record"),
        (lambda d: (d / "search.json").write_text("[]"), "not a search index"),
        (lambda d: change(d, documents=7), "checksum"),
        (lambda d: change(d, version=9), "version 9"),
        (lambda d: orders(d, -2_000_000_000), "order was changed"),
        (lambda d: flip(d, "search-00000.text"), "text was changed"),
        (lambda d: flip(d, "search-starts.u64"), "u64 was changed"),
        (lambda d: flip(d, "search-ids.arrow"), "arrow was changed"),
    ],
)
def test_a_damaged_index_is_refused_in_one_line(tmp_path, damage, message):
    index_of(tmp_path, ["some text", "more"])
    damage(tmp_path)
    with pytest.raises(UsageError, match=message) as error:
        SearchIndex(find_folder(tmp_path))
    assert "\n" not in str(error.value) and "search build" in str(error.value)


@pytest.mark.parametrize("position", [-2_000_000_000, -1, 10, 2**31 - 1])
def test_a_forged_suffix_order_is_refused_when_it_is_read(tmp_path, position):
    """Its checksums fit: who writes an index can compute them."""
    index_of(tmp_path, ["some text"])
    orders(tmp_path, position)
    record = json.loads((tmp_path / "search.json").read_text())
    del record["digest"], record["xxh3"]
    change(tmp_path, xxh3={}, digest=_digest(record | {"xxh3": {}}))
    for ask in (find, longest):
        with pytest.raises(UsageError, match=r"search index is damaged .*search build"):
            ask(SearchIndex(tmp_path), "text")


def test_a_corrupt_suffix_order_never_reads_past_the_text(tmp_path):
    """The suffixes at both ends of a search do not share with the one between what they share with
    the pattern: it may be shorter. The kernel read behind the text."""
    index_of(tmp_path, ["aaaaaaaa b"])
    order = np.array([0, 1, 2, 3, 4, 10, 5, 6, 7, 8, 9], "<i4")
    order.tofile(tmp_path / "search-00000.order")
    record = json.loads((tmp_path / "search.json").read_text()) | {"xxh3": {}}
    change(tmp_path, xxh3={}, digest=_digest(record))
    try:
        assert longest(SearchIndex(tmp_path), "aaaaaaaaaaaa").bytes <= 8
    except UsageError as error:
        assert "damaged" in str(error)


def orders(folder: Path, position: int) -> None:
    path = folder / "search-00000.order"
    np.full(path.stat().st_size // 4, position, "<i4").tofile(path)


def flip(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)


def change(folder: Path, **values: object) -> None:
    path = folder / "search.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_document_that_no_chunk_can_hold_is_named(tmp_path):
    with pytest.raises(RunFailed, match="d1"):
        index_of(tmp_path, ["short", "much longer than that"], most=10)


def test_the_index_of_a_run_and_one_that_was_built_are_searched_alike(bench):
    rows = [{"id": "a", "text": "Hello wide world."}, {"id": "b", "text": "The wide world, again."}]
    source = bench.jsonl("in.jsonl", rows)
    bench.run([{"dedup_suffix_array": {"threshold": 8}}], source, out="run")
    done = bench.command("search", "build", source, "-o", "built", "-q")
    assert done.returncode == 0, done.stderr
    assert "wide" not in bench.rows("run")[1]["text"]  # the index is of what came in
    for location in ("run", "run/index", "run/index/dedup_suffix_array", "built"):
        done = bench.command("search", location, "wide world", "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["count"] == 2
        assert [(h["document"], h["byte"]) for h in result["hits"]] == [("a", 6), ("b", 4)]
    done = bench.command("search", "built", "wide world", "--limit", "1")
    assert "found 2 times, the first 1:" in done.stdout
    assert "  a byte 6: Hello [wide world]." in done.stdout
    (bench.folder / "essay.txt").write_text("My wide world is.")
    done = bench.command("search", "built", "--file", "essay.txt")
    assert "longest shared passage: 11 bytes, from byte 2 of the text" in done.stdout, done.stderr
    done = bench.command("search", "built", "--longest", "xyz!")
    assert done.returncode == 0 and "the text shares nothing" in done.stdout
    for wrong in (["built"], ["built", "a", "--longest", "b"], ["absent", "a"], ["in.jsonl", "a"]):
        done = bench.command("search", *wrong)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


def test_building_an_index_again_finds_that_all_is_done(bench):
    source = bench.jsonl("in.jsonl", [{"id": "a", "text": "text"}])
    all_done = []
    for _ in range(2):
        done = bench.command("search", "build", source, "-o", "index")
        assert done.returncode == 0, done.stderr
        all_done.append("nothing to do" in done.stdout)
    assert all_done == [False, True]


def test_an_empty_corpus_has_an_index_too(tmp_path):
    index = index_of(tmp_path, [])
    assert find(index, "a").count == 0 and longest(index, "a").bytes == 0
    assert np.array_equal(index.starts, [])
