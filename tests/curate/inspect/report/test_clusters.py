"""`llmcurate dedup clusters`: the largest clusters and the differences within them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.inspect.browse.pages import listed
from curate.inspect.report import duplicates as clusters
from curate.inspect.report.duplicates import SIZES, browse
from curate.inspect.report.page import by_count, size_range
from llmcurate.base.errors import UsageError

WORDS = " ".join(f"word{i}" for i in range(120))
RECIPE = [{"dedup_exact": {}}, {"dedup_minhash": {"verify": 0.5, "bands": 50, "rows": 2}}]


def test_counts_are_sorted_by_size_then_by_name() -> None:
    counts = {"b": 2, "c": 3, "a": 2}
    assert by_count(counts) == [("c", 3), ("a", 2), ("b", 2)]
    assert listed(counts, ["e", "a"], "d") == [*by_count(counts), ("d", 0), ("e", 0)]


def test_a_size_of_clusters_reaches_up_to_the_next() -> None:
    ranges = ["2", "3", "4", "5 to 9", "10 to 19", "20 to 49", "50 to 99", "100 to 999"]
    assert [size_range(size) for size in SIZES] == [*ranges, "1,000 or more"]


@pytest.fixture(scope="module")
def out(shared_bench: Any) -> Path:
    texts = [WORDS, WORDS, WORDS, WORDS.replace("word60 ", "\x1b[31mother "), "nothing like it"]
    rows = [
        {"id": f"d{i}", "text": t, "url": f"https://h.test/{i}", "date": "2024-05-06"}
        for i, t in enumerate(texts)
    ]
    shared_bench.run(RECIPE, shared_bench.jsonl("in.jsonl", rows))
    return shared_bench.folder / "out"


def test_the_largest_cluster_comes_first_and_the_least_similar_member_too(out: Path) -> None:
    page = browse(out, 20, None, 2, 5)
    assert [(c.method, c.size, c.gone) for c in page.clusters] == [
        ("exact:text", 3, 2),
        ("minhash", 2, 1),
    ]
    assert page.total == 2
    exact = page.clusters[0]
    assert exact.stays.id == "d0" and {m.id for m in exact.members} == {"d1", "d2"}


def test_the_difference_of_near_duplicates_is_marked(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = browse(out, 1, "minhash", 2, 5)
    text = clusters.text(page)
    (member,) = page.clusters[0].members
    assert (page.clusters[0].stays.id, member.id) in {("d0", "d3"), ("d3", "d0")}
    assert "word59 [-" in text and "{+" in text and "+} word61" in text
    assert "https://h.test/3" in text and "2024-05-06" in text and "in.jsonl" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_text_of_documents_cannot_write_to_the_terminal(out: Path) -> None:
    page = browse(out, 1, "minhash", 2, 5)
    assert "\x1b" not in clusters.text(page)
    assert "\u241b[31mother" in clusters.text(page)


def test_identical_duplicates_are_shown_once(out: Path) -> None:
    text = clusters.text(browse(out, 1, "exact", 2, 5))
    assert text.count("word0 word1") == 1 and text.count("the same words") == 2


def test_a_method_is_known_by_its_own_name_and_by_that_of_the_command(out: Path) -> None:
    for name in ("exact:text", "exact"):
        assert {c.method for c in browse(out, 9, name, 2, 1).clusters} == {"exact:text"}
    with pytest.raises(UsageError, match="of this method; known: exact:text, minhash"):
        browse(out, 9, "lines", 2, 1)


def test_small_clusters_can_be_left_out(out: Path) -> None:
    assert [c.size for c in browse(out, 9, None, 3, 1).clusters] == [3]
    assert "no cluster matches" in clusters.text(browse(out, 9, None, 4, 1))


def test_a_passage_is_shown_at_its_position_after_the_cuts(bench: Any) -> None:
    shared = ["First line that stands on both of the pages.", "Second line that both have."]
    own = "Only here stands a line like number {} of them."
    rows = [
        {"id": "a", "text": "\n".join([shared[0], own.format(1), "  ", shared[1]])},
        {"id": "b", "text": "\n".join([shared[1], own.format(2), shared[0], own.format(3)])},
    ]
    bench.run([{"dedup_passages": {"min_sentences": 0}}], bench.jsonl("in.jsonl", rows))
    page = browse(bench.folder / "out", 9, "lines", 2, 9)
    assert {c.stays.text for c in page.clusters} == set(shared)
    for cluster in page.clusters:
        assert cluster.passages and cluster.members[0].text is None
    text = clusters.text(page)
    assert "bytes 0 to 44" in text and '"First line that stands on both of the pages."' in text


def test_duplicates_without_a_known_partner_are_only_counted(out: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    path = copy / "decisions.parquet"
    table = pq.read_table(path)
    nothing = pa.nulls(len(table), pa.int64())
    table = table.set_column(table.column_names.index("cluster"), "cluster", nothing)
    pq.write_table(table, path)
    page = browse(copy, 9, None, 2, 2)
    assert page.clusters == [] and page.unknown == {"exact:text": 3, "minhash": 2}
    assert "place is unknown" in clusters.text(page)


def test_a_copy_of_an_earlier_run_names_it(bench: Any) -> None:
    old = bench.jsonl("old.jsonl", [{"id": "old", "text": WORDS}])
    new = bench.jsonl("new.jsonl", [{"id": "new", "text": WORDS}, {"id": "z", "text": "else"}])
    bench.run([{"dedup_exact": {}}], old, out="january")
    step = {"dedup_exact": {"against": [str(bench.folder / "january")], "survivor": "first"}}
    bench.run([step], new, out="february")
    page = browse(bench.folder / "february", 9, None, 1, 2)
    text = clusters.text(page)
    assert "duplicate of old in january" in text and "which is not in this run" in text


def test_the_command_prints_json(bench: Any, out: Path) -> None:
    done = bench.command("dedup", "clusters", out, "--show", 1, "--json")
    assert done.returncode == 0, done.stderr
    (cluster,) = json.loads(done.stdout)["clusters"]
    assert (cluster["size"], cluster["of"], len(cluster["members"])) == (3, "documents", 2)
    done = bench.command("dedup", "clusters", bench.folder / "nowhere")
    assert (done.returncode, done.stdout) == (2, "") and "no corpus/" in done.stderr
