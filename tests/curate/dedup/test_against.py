"""Dedup against earlier runs, the max_removal guard, and the hash of kept ids."""

from __future__ import annotations

import random
import shutil
from typing import Any

import pytest

from curate.run import driver
from llmcurate.base.errors import RunFailed, UsageError

WORDS = "river mill house stone water light field horse wagon road bridge winter".split()
METHODS: list[dict[str, Any]] = [
    {"dedup_exact": {}},
    {"dedup_exact": {"key": "url"}},
    {"dedup_minhash": {}},
    {"dedup_minhash": {"verify": 0.7}},
    {"dedup_passages": {"unit": "line"}},
    {"dedup_passages": {"unit": "sentences", "min_words": 0, "min_sentences": 0}},
    {"dedup_passages": {"unit": "paragraph"}},
    {"dedup_passages": {"unit": "paragraph", "keep": "none", "hash": "sha1-64"}},
    {"dedup_simhash": {"max_distance": 6}},
]


def text(draw: random.Random) -> str:
    lines = [" ".join(draw.choices(WORDS, k=12)).capitalize() + "." for _ in range(7)]
    return "\n".join(lines)


def corpora(count: int = 60) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A, and B with copies, near copies and single lines of A and of itself."""
    draw = random.Random(7)
    first = [text(draw) for _ in range(count)]
    second = []
    for i in range(count):
        new = text(draw)
        if i % 4 == 1:
            new = first[i]
        elif i % 4 == 2:
            new = f"{first[i]} And one more."
        elif i % 4 == 3:
            new = "\n".join([*new.split("\n")[:4], *first[i].split("\n")[2:6]])
        second += [new, new.replace("river", "River")] if i % 9 == 0 else [new]
    named = []
    for name, texts in (("a", first), ("b", second)):
        rows = [
            {"id": f"{name}{i:03d}", "text": t, "url": f"https://h.test/{host}/{i % 50}"}
            for i, t in enumerate(texts)
            for host in (name if i % 3 else "both",)
        ]
        named.append(rows)
    return named[0], named[1]


def with_settings(step: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{name: {**settings, **more} for name, settings in step.items()}]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder for caches."""
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def die(*arguments):
    raise KeyboardInterrupt


# One worker and two in turn; a slow test has each method with both, and other forms of a method.
FORMS = (METHODS[1], METHODS[5], METHODS[6])


@pytest.mark.parametrize(
    ("step", "workers"),
    [
        pytest.param(
            step, workers, marks=[pytest.mark.slow] if (n + workers) % 2 or step in FORMS else []
        )
        for n, step in enumerate(METHODS)
        for workers in (1, 2)
    ],
    ids=str,
)
def test_b_against_a_equals_the_part_of_b_in_a_run_over_both(bench, step, workers):
    a, b = corpora()
    first, second = bench.jsonl("one.jsonl", a), bench.jsonl("two.jsonl", b)
    bench.run(with_settings(step), first, out="a")
    against = with_settings(step, against=[str(bench.folder / "a")])
    bench.run(against, second, out="b", workers=workers)
    both = with_settings(step, survivor="first")
    bench.run(both, first, second, out="both")
    alone = {r["id"]: r["text"] for r in bench.rows("b")}
    together = {r["id"]: r["text"] for r in bench.rows("both") if r["id"].startswith("b")}
    assert alone == together
    assert len(alone) < len(b) or any(r["edits"] for r in bench.rows("b"))


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=[] if n in (0, 3) else [pytest.mark.slow])
        for n, step in enumerate(METHODS)
    ],
    ids=str,
)
def test_against_documents_decides_as_against_a_run_over_them(bench, cache, step):
    a, b = corpora()
    first, second = bench.jsonl("one.jsonl", a), bench.jsonl("two.jsonl", b)
    bench.run(with_settings(step), first, out="one")
    for out, against in (("run", bench.folder / "one"), ("documents", first)):
        bench.run(with_settings(step, against=[str(against)]), second, out=out)
    assert bench.rows("documents") == bench.rows("run")
    assert bench.decisions("documents") == bench.decisions("run")


def test_only_the_index_of_compared_documents_is_cached_and_the_next_run_reuses_it(bench, cache):
    a, b = corpora(20)
    first, second = bench.jsonl("one.jsonl", a), bench.jsonl("two.jsonl", b)
    written = []
    for out in ("x", "y"):
        bench.run([{"dedup_exact": {"against": [str(first)]}}], second, out=out)
        (index,) = (cache / "against").glob("*/*")
        written.append((index.name, index.stat().st_mtime_ns))
    assert written[0] == written[1] and written[0][0] == "index"
    assert bench.rows("x") == bench.rows("y")


def test_other_documents_to_compare_with_are_another_run(bench, cache):
    a, b = corpora(20)
    first, second = bench.jsonl("one.jsonl", a), bench.jsonl("two.jsonl", b)
    step = {"dedup_exact": {"against": [f"old={first}"], "max_removal": 1.0}}
    before = bench.run([step], second, out="out").totals().kept
    bench.jsonl("one.jsonl", [*a, *b])
    assert before > 0 and bench.run([step], second, out="out").totals().kept == 0


def test_documents_are_indexed_after_a_kill_where_it_stopped(bench, cache, monkeypatch):
    a, b = corpora(20)
    first, second = bench.jsonl("one.jsonl", a), bench.jsonl("two.jsonl", b)
    step = {"dedup_exact": {"against": [str(first)]}}
    with monkeypatch.context() as patched:
        patched.setattr(driver.indexes, "write_indexes", die)
        with pytest.raises(KeyboardInterrupt):
            bench.run([step], second, out="x")
    bench.run([step], second, out="x")
    bench.run([step], second, out="y")
    assert bench.rows("x") == bench.rows("y")


def test_the_corpus_that_matched_is_named(bench):
    a, b = corpora()
    bench.run([{"dedup_exact": {}}], bench.jsonl("one.jsonl", a), out="wiki")
    earlier = [str(bench.folder / "wiki")]
    bench.run([{"dedup_exact": {"against": earlier}}], bench.jsonl("two.jsonl", b), out="b")
    by_id = {d["id"]: d for d in bench.decisions("b")}
    named = [d for d in by_id.values() if d["partner_corpus"]]
    assert named and all(d["partner_corpus"] == "wiki" for d in named)
    assert all(d["partner_id"].startswith("a") and d["kept_id"].startswith("a") for d in named)
    details = {r["id"]: r["detail"] for r in bench.rows("b", "rejected")}
    assert all(details[d["id"]] == f"{d['partner_id']} in wiki" for d in named)


def test_of_two_earlier_corpora_the_first_given_is_named_as_partner(bench):
    a, b = corpora()
    same = a[:10]
    for name in ("x", "y"):
        bench.run([{"dedup_exact": {}}], bench.jsonl(f"{name}.jsonl", same), out=name)
    for order in (("x", "y"), ("y", "x")):
        earlier = [str(bench.folder / name) for name in order]
        out = "-".join(order)
        source = bench.jsonl("again.jsonl", [*b, *same])
        bench.run([{"dedup_exact": {"against": earlier}}], source, out=out)
        partners = {d["partner_corpus"] for d in bench.decisions(out)} - {None}
        assert partners == {order[0]}


def test_an_id_of_an_earlier_corpus_may_hold_any_character(bench):
    odd = {"id": "\x1ewiki\x1e7", "text": "The same text in both of them."}
    bench.run([{"dedup_exact": {}}], bench.jsonl("one.jsonl", [odd]), out="a")
    earlier = [str(bench.folder / "a")]
    new = [{"id": "n", "text": odd["text"]}, {"id": "m", "text": "Another text."}]
    bench.run([{"dedup_exact": {"against": earlier}}], bench.jsonl("two.jsonl", new), out="b")
    (decision,) = bench.decisions("b")
    assert (decision["partner_id"], decision["partner_corpus"]) == (odd["id"], "a")


def test_an_index_stays_usable_when_the_stages_are_gone(bench):
    a, b = corpora(20)
    bench.run([{"dedup_minhash": {}}], bench.jsonl("one.jsonl", a), out="a")
    shutil.rmtree(bench.folder / "a/stages")
    step = {"dedup_minhash": {"against": [str(bench.folder / "a")]}}
    outcome = bench.run([step], bench.jsonl("two.jsonl", b), out="b")
    assert outcome.totals().rejected > 5


def test_an_incompatible_or_missing_index_is_a_one_line_error(bench):
    a, _ = corpora(5)
    source = bench.jsonl("one.jsonl", a)
    bench.run([{"dedup_minhash": {"ngram": 4}}], source, out="a")
    earlier = {"against": [str(bench.folder / "a")]}
    with pytest.raises(UsageError, match="made with ngram: 4"):
        bench.run([{"dedup_minhash": earlier}], source, out="b")
    shutil.rmtree(bench.folder / "a/corpus")  # else the documents that it kept are compared with
    with pytest.raises(UsageError, match="an index of dedup_minhash, but not of dedup_exact"):
        bench.run([{"dedup_exact": earlier}], source, out="b")
    with pytest.raises(UsageError, match="does not exist; give documents"):
        bench.run([{"dedup_exact": {"against": [str(bench.folder / "c")]}}], source, out="b")
    with pytest.raises(UsageError, match="survivor must be `first`"):
        bench.run([{"dedup_minhash": {**earlier, "survivor": "longest"}}], source, out="b")
    with pytest.raises(UsageError, match="two corpora named 'a'"):
        bench.run([{"dedup_minhash": {"ngram": 4, "against": earlier["against"] * 2}}], source)


def test_a_dedup_that_would_remove_nearly_all_stops_before_anything_is_applied(bench):
    rows = [{"id": f"d{i:02d}", "text": "Always the same."} for i in range(30)]
    rows.append({"id": "x", "text": "Something else."})
    source = bench.jsonl("in.jsonl", rows)
    with pytest.raises(
        RunFailed, match=r"29 of 31 documents \(93.5%\).*d00 has the most duplicates \(29\)"
    ) as stopped:
        bench.run([{"dedup_exact": {}}], source)
    assert stopped.value.exit_code == 1
    assert not (bench.folder / "out/corpus").exists()
    decided = [*bench.folder.glob("out/stages/*/decisions-*.parquet")]
    before = [(p, p.stat().st_ino) for p in decided]
    assert before
    with pytest.raises(RunFailed, match=r"max_removal 0\.92"):
        bench.run([{"dedup_exact": {"max_removal": 0.92}}], source)
    bench.run([{"dedup_exact": {"max_removal": 0.95}}], source)
    assert [(p, p.stat().st_ino) for p in decided] == before, "it was decided again"
    assert bench.ids() == ["d00", "x"]


def test_the_guard_says_how_many_duplicates_an_earlier_corpus_has(bench):
    source = bench.jsonl("in.jsonl", corpora(20)[0])
    bench.run([{"dedup_exact": {}}], source, out="old")
    step = {"dedup_exact": {"against": [str(bench.folder / "old")], "max_removal": 0.5}}
    with pytest.raises(
        RunFailed, match=r"would remove (\d+) of .*; \1 duplicates are in old already"
    ):
        bench.run([step], source)


def test_the_guard_counts_bytes_where_passages_are_cut(bench):
    line = "This line stands in every document of the corpus and is long."
    rows = [{"id": f"d{i:02d}", "text": f"{line}\n{line}\nno {i}"} for i in range(30)]
    source = bench.jsonl("in.jsonl", rows)
    step = {"dedup_passages": {"unit": "line", "min_sentences": 0}}
    with pytest.raises(RunFailed, match="bytes"):
        bench.run([step], source)
    step["dedup_passages"]["max_removal"] = 1.0
    bench.run([step], source)


def test_the_hash_of_kept_ids_depends_on_the_set_alone(bench):
    _, b = corpora()
    step = [{"dedup_minhash": {"survivor": "longest"}}]
    hashes = set()
    for nth, workers in enumerate((1, 2, 8)):
        rows = list(b)
        random.Random(nth).shuffle(rows)
        cut = 17 * (nth + 1)
        first = bench.jsonl(f"{nth}-one.jsonl", rows[:cut])
        second = bench.jsonl(f"{nth}-two.jsonl", rows[cut:])
        outcome = bench.run(step, first, second, out=f"out{nth}", workers=workers)
        hashes.add(outcome.totals().kept_ids)
    assert len(hashes) == 1
    fewer = bench.run(step, bench.jsonl("fewer.jsonl", b[1:]), out="fewer")
    assert fewer.totals().kept_ids not in hashes


def test_against_a_run_without_that_dedup_its_kept_documents_are_compared(bench, cache):
    a, b = corpora(20)
    bench.run([{"document_length": {"min": 1}}], bench.jsonl("one.jsonl", a), out="a")
    assert not (bench.folder / "a/index").exists()
    step = {"dedup_exact": {"against": [str(bench.folder / "a")]}}
    outcome = bench.run([step], bench.jsonl("two.jsonl", [*a, *b, *b]), out="b")
    assert outcome.totals().kept == len({r["text"] for r in b} - {r["text"] for r in a})
