"""Semantic dedup over whole runs: what goes, what stays, what is computed again, and the truth."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from curate.lab.semantic import neighbours as semantic_clusters
from curate.lab.semantic.neighbours import Nearest, count_removed, removed_share
from curate.lab.semantic.semantic_duplicates import DedupSemantic
from curate.run.stages import Stages
from llmcurate.base.errors import RunFailed, UsageError
from tests.parameters import mostly_slow

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
VERSIONS = SHARED / "corpora/dedup/versions.jsonl.zst"
PAIRS = SHARED / "corpora/dedup/pairs.jsonl.gz"
real = pytest.mark.skipif(not VERSIONS.exists(), reason=f"no {VERSIONS}; set LLMCURATE_SHARED")

WORDS = [f"w{i}" for i in range(2000)]


def prose(seed: int, words: int = 120) -> list[str]:
    return random.Random(seed).choices(WORDS, k=words)


def changed(words: list[str], count: int, seed: int) -> str:
    """The text with so many words changed."""
    draw = random.Random(seed)
    words = list(words)
    for at in draw.sample(range(len(words)), count):
        words[at] = draw.choice(WORDS)
    return " ".join(words)


def corpus(groups: int = 40) -> list[dict[str, Any]]:
    """Texts of 120 words: of every group an original, which is the longest, a copy, one with a word
    changed and one with 60 words changed."""
    rows = []
    for g in range(groups):
        words = prose(g)
        texts = [" ".join(words), " ".join(words), changed(words, 1, g), changed(words, 60, -g)]
        for kind, text in zip("ocnf", texts, strict=True):
            text = text + " and the rest" if kind == "o" else text
            rows.append({"id": f"{kind}{g:02d}", "text": text, "source": "web"})
    return rows


def semantic(bench, rows: list[dict[str, Any]], out: str = "out", **settings: Any) -> list[str]:
    """Ids that stay, in order."""
    inputs = settings.pop("inputs", None) or [bench.jsonl(f"{out}.jsonl", rows)]
    workers = settings.pop("workers", 1)
    bench.run([{"dedup_semantic": settings}], *inputs, out=out, workers=workers)
    return bench.ids(out)


@pytest.fixture(scope="module")
def base(shared_bench):
    """A run over the corpus with the default settings."""
    semantic(shared_bench, corpus(), "base")
    return shared_bench


def test_duplicates_and_near_duplicates_are_dropped_and_half_equal_texts_kept(base):
    expected = {f"{kind}{g:02d}" for g in range(40) for kind in "of"}
    assert set(base.ids("base")) == expected


def test_keep_none_drops_also_the_one_that_each_chain_would_keep(base):
    kept = {row["kept_id"] for row in base.decisions("base")}
    alone = set(base.ids("base")) - kept
    assert kept and set(semantic(base, corpus(), "none", keep="none")) == alone
    ids = {row["id"] for row in base.decisions("none")}
    assert ids == kept | {row["id"] for row in base.decisions("base")}


def test_decisions_and_reasons_say_what_matched(base):
    rows = base.decisions("base")
    assert {r["method"] for r in rows} == {"semantic"}
    for row in rows:
        group = row["id"][1:]
        assert row["kept_id"] == f"o{group}" and row["span_start"] is None
        if row["id"] == row["kept_id"]:
            assert row["partner_id"] is None and row["similarity"] is None
        else:
            assert row["partner_id"][1:] == group and 0.93 < row["similarity"] <= 1.0
    assert len({r["cluster"] for r in rows}) == 40 and len(rows) == 120
    for row in base.rows("base", "rejected"):
        assert row["step"] == "dedup_semantic" and row["rule"] == "semantic_duplicate"
        assert row["value"] > row["threshold"] == 0.93 and row["detail"][1:] == row["id"][1:]


def test_a_chain_is_one_cluster_and_its_end_stays(bench):
    """Each is like the next one, the first is not like the last."""
    words = prose(1, 300)
    rows = []
    for step in range(6):
        words = changed(words, 20, step).split()
        rows.append({"id": f"s{step}", "text": " ".join(words) + " x" * (60 - 10 * step)})
    assert semantic(bench, rows, epsilon=0.25, clusters=1) == ["s0"]
    by_id = {r["id"]: r for r in bench.decisions()}
    assert {r["cluster"] for r in by_id.values()} == {0}
    assert {r["kept_id"] for r in by_id.values()} == {"s0"}
    assert by_id["s5"]["partner_id"] != "s0"
    first = {r["id"]: r for r in rows}
    semantic(bench, [first["s0"], first["s5"]], "ends", epsilon=0.25, clusters=1)
    assert bench.ids("ends") == ["s0", "s5"]


def test_decisions_do_not_depend_on_workers_files_or_order(base):
    rows = corpus()
    settings: dict[str, Any] = {"prototypicality": 0.7}
    decided = []
    for number, workers in enumerate([1, 2, 2]):
        inputs = None
        if number:
            random.Random(number).shuffle(rows)
            inputs = [base.jsonl(f"{number}-{i}.jsonl", rows[i::3]) for i in range(3)]
        out = f"order-{number}"
        semantic(base, rows, out, inputs=inputs, workers=workers, **settings)
        decided.append(sorted(base.decisions(out), key=lambda d: (d["id"], d["method"])))
    assert decided[0] == decided[1] == decided[2]
    assert any(d["method"] == "semantic:prototypical" for d in decided[0])


POLICIES = {
    "longest": "b",
    "newest": "c",
    "prefer-source:news": "d",
    "first": "a",
}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_survivor_is_the_one_of_the_policy(bench, policy):
    text = " ".join(prose(3, 400))
    rows: list[dict[str, Any]] = [
        {"id": "a", "text": text, "date": "2020-01-01", "source": "web", "score": 3.0},
        {"id": "b", "text": text + " more", "date": None, "source": "web", "score": 1.0},
        {"id": "c", "text": text, "date": "2021-01-01", "source": "web", "score": 2.0},
        {"id": "d", "text": text, "date": "2020-06-01", "source": "news", "score": None},
        {"id": "e", "text": " ".join(prose(4)), "source": "web", "score": 0.0},
    ]
    assert semantic(bench, rows, survivor=policy) == sorted([POLICIES[policy], "e"])


def test_hard_keeps_the_one_farthest_from_its_centroid(base):
    semantic(base, corpus(), "hard", survivor="hard", clusters=4)
    own = base.folder / "hard/index/dedup_semantic/own"
    rows = pq.read_table(own / "similarity.parquet").to_pylist()
    matrix, centroids = np.load(own / "embeddings.npy"), np.load(own / "centroids.npy")
    rows_of_matrix = np.arange(len(matrix))
    cosine = semantic_clusters.nearest_centroids(matrix, centroids, rows_of_matrix, 1)[1]
    to_centroid = {r["id"]: cosine[r["place"]] for r in rows}
    dropped = [r for r in base.decisions("hard") if r["partner_id"]]
    assert len(dropped) == 80
    assert all(to_centroid[r["partner_id"]] <= to_centroid[r["id"]] for r in dropped)
    assert any(r["kept_id"][0] != "o" for r in dropped)


def written(bench, out: str, pattern: str) -> dict[str, int]:
    paths = (bench.folder / out / "stages").rglob(pattern)
    return {str(p): p.stat().st_mtime_ns for p in paths if p.is_file()}


def test_another_epsilon_neither_sketches_nor_compares_again(bench, monkeypatch):
    semantic(bench, corpus(10))
    sketches = written(bench, "out", "part-*.sketch-*")
    folder = written(bench, "out", "resolve-*/*")
    assert len(sketches) == 1 and len(folder) == 4
    source = bench.folder / "out.jsonl"
    monkeypatch.setattr(semantic_clusters, "highest", None)
    few = semantic(bench, [], inputs=[source], epsilon=0.85)
    assert len(few) == 10
    none = semantic(bench, [], inputs=[source], epsilon=1e-9)
    assert len(none) == 40
    pruned = semantic(bench, [], inputs=[source], epsilon=0.85, prototypicality=0.5)
    assert len(pruned) == 5
    assert written(bench, "out", "part-*.sketch-*") == sketches
    assert written(bench, "out", "resolve-*/*") == folder


def test_other_dimensions_do_not_sketch_again(bench):
    semantic(bench, corpus(10))
    sketches = written(bench, "out", "part-*.sketch-*")
    semantic(bench, [], inputs=[bench.folder / "out.jsonl"], dimensions=8, residual=0, nearest=1)
    assert written(bench, "out", "part-*.sketch-*") == sketches


@pytest.mark.parametrize("broken", ["same_vectors", "highest"])
def test_a_killed_resolve_ends_with_the_same_decisions(base, monkeypatch, broken):
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(semantic_clusters, broken, die)
        patch.setattr(Stages, "decides_in_worker", lambda *_: False)  # it dies in this process
        with pytest.raises(KeyboardInterrupt):
            semantic(base, corpus(), f"killed-{broken}")
    (own,) = (base.folder / f"killed-{broken}/stages").glob("*/resolve-*")
    assert (own / "embeddings.npy").exists() and not (own / "similarity.parquet").exists()
    (own / ".part-1-similarity.parquet").write_bytes(b"half")
    source = base.folder / f"killed-{broken}.jsonl"
    semantic(base, [], f"killed-{broken}", inputs=[source])
    assert base.decisions(f"killed-{broken}") == base.decisions("base")
    assert not list(own.glob(".part-*"))


def test_a_similarity_at_a_limit_is_kept_as_the_decisions_keep_it() -> None:
    similarity, epsilons = np.array([0.3, 0.9, 0.9, 0.95]), np.array([0.05, 0.1, 0.100001, 0.7])
    assert count_removed(similarity, epsilons).tolist() == [0, 1, 3, 3]


@pytest.mark.parametrize(
    ("keep", "gone", "least"),
    [(0.8, [0], 0.9), (0.6, [0, 2], 0.9), (0.2, [0, 2, 3], 0.5), (1.0, [], 1.0)],
)
def test_of_equally_similar_documents_the_first_rows_are_dropped(keep, gone, least) -> None:
    """Row 5 is of an earlier corpus, and goes where own ones as similar do; 4 is like none."""
    similarity = np.array([0.9, 0.0, 0.9, 0.5, 0.9, 0.9])
    nearest = Nearest(similarity, np.array([1, -1, 1, 1, -1, 1]), np.arange(6) != 5)
    removed, lowest = removed_share(nearest, keep)
    assert np.flatnonzero(removed).tolist() == gone + [5] * bool(gone) and lowest == least


def test_the_curve_says_what_another_epsilon_removes(base):
    for epsilon in (0.07, 0.3):
        out = base.run(
            [{"dedup_semantic": {"epsilon": epsilon}}], base.folder / "base.jsonl", out="curve"
        )
    decided = out.stages[0].decided
    (drawn,) = decided["curves"]
    assert len(drawn["x"]) == len(drawn["y"]) and sorted(drawn["y"]) == drawn["y"]
    assert drawn["mark"][:2] == [0.3, decided["dropped"] / 160]


@pytest.mark.parametrize("share", mostly_slow([0.9, 0.05, 0.5], 2))
def test_a_target_share_takes_the_most_similar_first(base, share):
    """D4's R_dedup. Of 160 documents 80 have a copy or a near one, others are half the same."""
    source = base.folder / "base.jsonl"
    out = f"share-{share}"
    kept = semantic(base, [], out, inputs=[source], keep_fraction=share, max_removal=1.0)
    own = base.folder / "base/index/dedup_semantic/own/similarity.parquet"
    rows = pq.read_table(own, columns=["id", "similarity"]).to_pylist()
    similar = {r["id"]: r["similarity"] for r in rows if r["similarity"] is not None}
    assert len(kept) == max(160 - len(similar), round(share * 160))
    gone = base.rows(out, "rejected")
    least = min(similar[r["id"]] for r in gone)
    assert least >= max(similar.get(i, 0) for i in kept)
    assert {r["threshold"] for r in gone} == {least} and {r["rule"] for r in gone} == {
        "semantic_duplicate"
    }
    decided = {r["id"]: r for r in base.decisions(out)}
    assert all(decided[r["id"]]["kept_id"] in kept for r in gone)


def test_d4_keeps_the_product_of_both_shares(base):
    source = base.folder / "base.jsonl"
    shares = {"keep_fraction": 0.75, "prototypicality": 0.5}
    assert len(semantic(base, [], "r", inputs=[source], **shares)) == round(0.75 * 0.5 * 160)


def test_prototypes_are_those_nearest_to_their_centroids(base):
    settings: dict[str, Any] = {"prototypicality": 0.75, "clusters": 5, "recluster": False}
    kept = semantic(base, corpus(), "d4", **settings)
    own = base.folder / "d4/index/dedup_semantic/own"
    matrix, centroids = np.load(own / "embeddings.npy"), np.load(own / "centroids.npy")
    cosine = semantic_clusters.nearest_centroids(matrix, centroids, np.arange(160), 1)[1]
    rows = pq.read_table(own / "similarity.parquet", columns=["id", "place"]).to_pylist()
    by_id = {r["id"]: cosine[r["place"]] for r in rows}
    pruned = [r for r in base.rows("d4", "rejected") if r["rule"] == "prototypical"]
    assert len(pruned) == 20 and len(kept) == 60
    assert min(by_id[r["id"]] for r in pruned) >= max(by_id[i] for i in kept)
    assert all(r["value"] == by_id[r["id"]] >= r["threshold"] for r in pruned)
    decisions = [r for r in base.decisions("d4") if r["method"] == "semantic:prototypical"]
    assert {r["id"] for r in decisions} == {r["id"] for r in pruned}
    assert all(r["kept_id"] is None and r["cluster"] is None for r in decisions)
    assert "nearest to the centroids" in (base.folder / "d4/report.html").read_text()


def test_recluster_clusters_the_documents_left_after_dedup(base):
    """A template fills a cluster; once its copies are gone, it is no cluster of its own."""
    sets: dict[str, Any] = {"prototypicality": 0.75, "clusters": 5}
    once = set(semantic(base, corpus(), "once", recluster=False, **sets))
    again = set(semantic(base, corpus(), "again", recluster=True, **sets))
    assert once != again and len(once) == len(again) == 60


ODD = [
    {"id": "empty", "text": ""},
    {"id": "empty2", "text": ""},
    {"id": "blank", "text": " \n\t "},
    {"id": "signs", "text": "!!! ???"},
    {"id": "nul", "text": "\x00\x00"},
    {"id": "one", "text": "word"},
    {"id": "two", "text": "word"},
    {"id": "long", "text": "again and again " * 20_000},
    {"id": "long2", "text": "again and again " * 20_000 + "."},
]


def test_texts_without_words_match_nothing(bench):
    kept = semantic(bench, ODD, prototypicality=0.99)
    assert kept == ["empty", "empty2", "blank", "signs", "nul", "one", "long2"]


@pytest.mark.parametrize("rows", [[], ODD[:2], ODD[:1] + ODD[5:6]])
def test_small_and_empty_corpora_pass(bench, rows):
    assert semantic(bench, rows, prototypicality=0.99) == [r["id"] for r in rows]


def test_against_an_earlier_run_its_own_basis_counts(bench):
    rows = corpus(30)
    old = [r for r in rows if r["id"][0] == "o"]
    new = [r for r in rows if r["id"][0] != "o"]
    semantic(bench, old, "old")
    kept = semantic(bench, new, "new", against=[str(bench.folder / "old")])
    assert {k[0] for k in kept} == {"f"} and len(kept) == 30
    rejected = bench.rows("new", "rejected")
    assert all(f"{r['detail'][0]}" in "oc" for r in rejected)
    assert {r["partner_corpus"] for r in bench.decisions("new")} <= {"old", None}
    files = [bench.folder / out / "index/dedup_semantic/own/basis.npz" for out in ("old", "new")]
    assert files[0].read_bytes() == files[1].read_bytes()
    with pytest.raises(UsageError, match="dimensions: 128"):
        semantic(bench, new, "new2", against=[str(bench.folder / "old")], dimensions=64)


def test_another_epsilon_against_the_same_index(bench):
    rows = corpus(10)
    semantic(bench, [r for r in rows if r["id"][0] in "oc"], "old", epsilon=0.2)
    new = [r for r in rows if r["id"][0] in "nf"]
    old = str(bench.folder / "old")
    kept = semantic(bench, new, "new", against=[old], epsilon=0.85, max_removal=1)
    assert kept == []


def test_the_guard_stops_an_epsilon_that_takes_all(bench):
    rows = [{"id": str(i), "text": changed(prose(0), 1, i)} for i in range(30)]
    with pytest.raises(RunFailed, match=r"would remove 29 of 30 documents"):
        semantic(bench, rows, epsilon=0.4)


REWORDED = [
    (
        "The harbour of the old town was closed on Monday because a storm had damaged two of its"
        " cranes, and the ferries to the islands will not sail before Thursday.",
        "Because a storm damaged two cranes, the old town's harbour was closed on Monday; ferries"
        " to the islands will not sail again before Thursday.",
    ),
    (
        "To bake the bread, mix flour, water, salt and yeast, let the dough rise for two hours in"
        " a warm place, then bake it for forty minutes at a high heat.",
        "Mix the flour with water, yeast and salt for this bread, let the dough rise in a warm"
        " place for two hours and bake it at a high heat for forty minutes.",
    ),
    (
        "Researchers found that bees which had learned to roll a small ball for sugar taught other"
        " bees in the hive to do the same within a day.",
        "Bees that had learned to roll a small ball to get sugar taught the other bees of their"
        " hive to do the same within one day, researchers found.",
    ),
    (
        "The council voted to plant three hundred trees along the main road next spring, although"
        " some shops fear that they will hide their windows.",
        "Although some shops fear their windows will be hidden, the council has voted to plant"
        " three hundred trees along the main road in the spring.",
    ),
    (
        "The violin in the museum was made by a pupil of the master in 1702 and was played for the"
        " last time at a concert in the cathedral fifty years ago.",
        "Made in 1702 by a pupil of the master, the museum's violin was last played fifty years ago"
        " at a concert in the cathedral.",
    ),
]
UNRELATED = (
    "Wheat prices rose again this week after a dry month in the south, traders say.",
    "He sold the farm, the horses and the mill, and moved into two rooms above the bakery.",
    "A new law asks landlords to say how much heat a house loses before it is let.",
)


@pytest.mark.parametrize("settings", [{"residual": 0, "epsilon": 0.1}, {"epsilon": 0.45}])
def test_reworded_texts_are_found_and_unrelated_ones_stay(bench, settings):
    rows = [{"id": f"{i}{k}", "text": t} for i, p in enumerate(REWORDED) for k, t in enumerate(p)]
    rows += [{"id": f"x{i}", "text": text} for i, text in enumerate(UNRELATED)]
    kept = semantic(bench, rows, clusters=1, max_removal=1, **settings)
    assert [k[0] for k in kept] == ["0", "1", "2", "3", "4", "x", "x", "x"]


@pytest.fixture(scope="module")
def versions(shared_bench) -> list[str]:
    """Ids of real versions of pages, after a run with the default settings."""
    import zstandard

    with VERSIONS.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        rows = [{k: row[k] for k in ("id", "text")} for row in map(json.loads, lines)]
    semantic(shared_bench, rows, "versions", workers=2)
    return [row["id"] for row in rows]


@real
def test_against_the_exact_truth_of_real_versions(shared_bench, versions):
    """All pairs of embeddings, with the default epsilon: nearly every pair with a Jaccard
    similarity of 0.8 or more is found, and what is found has 0.5 or more."""
    own = shared_bench.folder / "versions/index/dedup_semantic/own"
    matrix = np.load(own / "embeddings.npy").astype(np.float64)
    rows = pq.read_table(own / "similarity.parquet", columns=["id", "place"]).to_pylist()
    row_of = {r["id"]: r["place"] for r in rows}
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    cosine = np.triu(matrix @ matrix.T, 1)
    jaccard = np.zeros_like(cosine)
    with gzip.open(PAIRS, "rt", encoding="utf-8") as file:
        for pair in map(json.loads, file):
            a, b = sorted((row_of[pair["a"]], row_of[pair["b"]]))
            jaccard[a, b] = pair["jaccard"]
    similar = cosine > 1 - DedupSemantic().epsilon
    assert similar[jaccard >= 0.9].mean() >= 0.99
    assert similar[jaccard >= 0.8].mean() >= 0.95
    assert (jaccard[similar] >= 0.5).mean() >= 0.99
    assert (jaccard[similar] >= 0.8).mean() >= 0.93


@real
def test_clusters_find_what_an_exhaustive_search_finds(shared_bench, versions):
    own = shared_bench.folder / "versions/index/dedup_semantic/own"
    matrix = np.load(own / "embeddings.npy")
    rank = np.arange(len(matrix))
    rows = np.flatnonzero(semantic_clusters.same_vectors(matrix, rank, rank) == rank)
    least = DedupSemantic().least

    def found(clusters: int, nearest: int) -> np.ndarray:
        centroids = semantic_clusters.fit(matrix, rows, clusters, 1)
        labels, _ = semantic_clusters.nearest_centroids(matrix, centroids, rows, nearest)
        return semantic_clusters.highest(matrix, rows, labels, rank)[0] > least

    every = found(1, 1)
    recall = {
        of: (found(*of) & every).sum() / every.sum() for of in [(44, 2), (1000, 1), (1000, 2)]
    }
    assert recall[44, 2] >= 0.999
    assert recall[1000, 1] < 0.85
    assert recall[1000, 2] >= 0.99
