"""Near duplicates on real page versions, compared with exact similarities."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import time
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from curate.dedup.minhash.near_duplicates import DedupMinhash, predicted
from llmcurate.base.errors import LlmcurateError
from tests.parameters import mostly_slow

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
VERSIONS = SHARED / "corpora/dedup/versions.jsonl.zst"
PAIRS = SHARED / "corpora/dedup/pairs.jsonl.gz"
OTHER_WORDS = re.compile(
    "[\u0300-\u036f\u0591-\u05c7\u0900-\u1cff\u20d0-\u20ff\u3040-\ud7ff\ufe00-\ufe0f]"
)
real = pytest.mark.skipif(not VERSIONS.exists(), reason=f"no {VERSIONS}; set LLMCURATE_SHARED")


@pytest.fixture(scope="module")
def versions() -> list[dict[str, Any]]:
    import zstandard

    with VERSIONS.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        return [{k: row[k] for k in ("id", "text")} for row in map(json.loads, lines)]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str, float]]:
    with gzip.open(PAIRS, "rt", encoding="utf-8") as file:
        return [(p["a"], p["b"], p["jaccard"]) for p in map(json.loads, file)]


@pytest.fixture(scope="module")
def source(shared_bench, versions) -> Path:
    return shared_bench.jsonl("versions.jsonl", versions)


def shares_a_band(step: DedupMinhash, versions, pairs) -> np.ndarray:
    from curate.dedup.minhash.kernels import band_keys

    number = {row["id"]: i for i, row in enumerate(versions)}
    text = pa.array([row["text"] for row in versions], pa.large_string())
    keys = band_keys(step.signatures(text)[0], *step.banding)
    first, second = (np.array([number[p[i]] for p in pairs]) for i in (0, 1))
    return (keys[first] == keys[second]).any(axis=1)


@real
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_recall_lies_on_the_predicted_curve(versions, pairs, seed):
    """Each 0.05 bin within four standard deviations. Pairs of a bin share documents, so they are
    not independent; documents are few a component, which doubles the variance at most."""
    candidates = shares_a_band(DedupMinhash(seed=seed), versions, pairs)
    true = np.array([p[2] for p in pairs])
    for low in np.arange(0.1, 1.0, 0.05):
        in_bin = (true >= low) & (true < low + 0.05)
        p = np.array([predicted(14, 8, s) for s in true[in_bin]])
        spread = np.sqrt(2 * (p * (1 - p)).sum()) + 1
        assert abs(candidates[in_bin].sum() - p.sum()) < 4 * spread, f"{low:.2f}"
    assert candidates[true >= 0.85].mean() >= 0.99


def jaccard_of(versions) -> Any:
    cache: dict[str, set[tuple[str, ...]]] = {}
    texts = {row["id"]: row["text"] for row in versions}

    def shingles(name: str) -> set[tuple[str, ...]]:
        if name not in cache:
            words = re.findall(r"\w+", texts[name].lower())
            cache[name] = {tuple(words[i : i + 5]) for i in range(len(words) - 4)}
        return cache[name]

    return lambda a, b: len(shingles(a) & shingles(b)) / len(shingles(a) | shingles(b))


def exact_components(names: list[str], pairs, least: float) -> list[set[str]]:
    group = {name: {name} for name in names}
    for a, b, similarity in pairs:
        if similarity >= least and group[a] is not group[b]:
            group[a] |= group[b]
            for name in group[b]:
                group[name] = group[a]
    components = {id(g): g for g in group.values()}
    return [g for g in components.values() if len(g) > 1]


@real
def test_verified_matches_are_true_and_components_those_of_the_exact_graph(
    shared_bench, versions, pairs, source
):
    shared_bench.run([{"dedup_minhash": {"verify": 0.7}}], source, out="verified")
    jaccard = jaccard_of(versions)
    # Elsewhere our words are not those of `\w+`: marks belong to letters, Han is cut by character.
    plain = {row["id"] for row in versions if not OTHER_WORDS.search(row["text"])}
    assert len(plain) > 0.95 * len(versions)
    ours = defaultdict(set)
    for row in shared_bench.decisions("verified"):
        ours[row["cluster"]].add(row["id"])
        if row["partner_id"] in plain and row["id"] in plain:
            true = jaccard(row["id"], row["partner_id"])
            assert true == row["similarity"] >= 0.7
    rejected = shared_bench.rows("verified", "rejected")
    assert all(r["detail"] and r["value"] >= r["threshold"] == 0.7 for r in rejected)
    exact = exact_components([row["id"] for row in versions], pairs, 0.7)
    same = sum(g in list(ours.values()) for g in exact)
    more = {"preset": "fineweb", "bands": 60, "verify": 0.7}
    shared_bench.run([{"dedup_minhash": more}], source, out="more")
    groups = defaultdict(set)
    for row in shared_bench.decisions("more"):
        groups[row["cluster"]].add(row["id"])
    dense = sum(g in list(groups.values()) for g in exact)
    assert same >= 0.95 * len(exact)
    assert dense >= 0.98 * len(exact)


@real
@pytest.mark.parametrize(
    "settings",
    [{}, pytest.param({"verify": 0.7}, marks=pytest.mark.slow)],
    ids=["banding", "verified"],
)
def test_kept_documents_do_not_depend_on_workers_files_or_order(
    shared_bench, versions, source, settings
):
    kept, decided = [], []
    rows = list(versions)
    for number, workers in enumerate([1, 2, 2]):
        inputs = [source]
        if number:
            random.Random(number).shuffle(rows)
            inputs = [shared_bench.jsonl(f"{number}-{i}.jsonl", rows[i::5]) for i in range(5)]
        steps = [{"dedup_minhash": settings}]
        shared_bench.run(steps, *inputs, out=f"order-{number}", workers=workers)
        kept.append(sorted(shared_bench.ids(f"order-{number}")))
        decisions = shared_bench.decisions(f"order-{number}")
        decided.append(sorted(decisions, key=lambda d: d["id"]))
    assert kept[0] == kept[1] == kept[2]
    assert decided[0] == decided[1] == decided[2]


WORDS = [f"w{i}" for i in range(1000)]


def prose(seed: int, words: int = 200) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


BASE = prose(0)
ROWS: list[dict[str, Any]] = [
    {"id": "a", "text": BASE, "date": "2020-01-01", "source": "web", "score": float("nan")},
    {"id": "b", "text": BASE + " more words", "date": "2020-01-03", "source": "web", "score": 0.5},
    {"id": "c", "text": BASE + " more", "date": None, "source": "books", "score": None},
    {"id": "d", "text": BASE, "date": "2020-01-02", "source": "news", "score": 2.5},
    {"id": "e", "text": prose(1), "source": "web", "score": 9.0},
]
POLICIES = {
    "longest": "b",
    "newest": "b",
    "best:score": "d",
    "prefer-source:books,news": "c",
    "prefer-source:news": "d",
    "prefer-source:none": "b",
}


def record(bench, out: str = "out") -> dict[str, Any]:
    """OUT/run.json."""
    return json.loads((bench.folder / out / "run.json").read_text())


def decide(bench, texts: list[dict[str, Any]], out: str = "out", **settings: Any) -> list[str]:
    """Ids that stay of the rows, in order."""
    bench.run([{"dedup_minhash": settings}], bench.jsonl(f"{out}.jsonl", texts), out=out)
    return bench.ids(out)


@pytest.mark.parametrize(
    ("policy", "verify"),
    [*mostly_slow(product(POLICIES, [0.8])), *product(POLICIES, [None])],
)
def test_the_survivor_is_the_same_whatever_the_order(bench, policy, verify):
    for number, rows in enumerate([ROWS, ROWS[::-1]]):
        kept = decide(bench, rows, f"out-{number}", survivor=policy, verify=verify)
        assert sorted(kept) == [POLICIES[policy], "e"]


def test_decisions_and_reasons_say_what_matched(bench):
    decide(bench, ROWS)
    rows = {d["id"]: d for d in bench.decisions()}
    assert list(next(iter(rows.values()))) == (
        "id cluster kept_id partner_id similarity method span_start span_end".split()
    )
    assert set(rows) == {"a", "b", "c", "d"}
    assert {(d["cluster"], d["kept_id"], d["method"]) for d in rows.values()} == {
        (0, "b", "minhash")
    }
    assert (rows["b"]["partner_id"], rows["b"]["similarity"]) == (None, None)
    for row in bench.rows("out", "rejected"):
        decided = rows[row["id"]]
        assert (row["step"], row["rule"]) == ("dedup_minhash", "near_duplicate")
        assert row["detail"] == decided["partner_id"] != row["id"]
        assert row["value"] == decided["similarity"] > 0.9
        assert row["threshold"] == pytest.approx(DedupMinhash().least)
    assert rows["a"]["similarity"] < 1.0 or rows["a"]["partner_id"] == "d"


@pytest.mark.parametrize("verify", [None, 0.5])
def test_survivor_first_drops_a_match_of_any_earlier_document_kept_or_dropped(bench, verify):
    """Each text shares two thirds of itself with the one before, nothing with the one before that:
    a chain, of which all but the first go. What comes later changes nothing."""
    words = WORDS[:700]
    chain = [
        {"id": f"c{i}", "text": " ".join(words[100 * i : 100 * i + 400])} for i in (0, 1, 2, 3)
    ]
    settings = {"survivor": "first", "verify": verify, "bands": 200, "rows": 4}
    assert decide(bench, chain, "all", **settings) == ["c0"]
    assert decide(bench, chain[:2], "some", **settings) == ["c0"]
    two = {d["id"]: (d["kept_id"], d["partner_id"]) for d in bench.decisions("some")}
    four = {d["id"]: (d["kept_id"], d["partner_id"]) for d in bench.decisions("all")}
    assert two == {"c0": ("c0", None), "c1": ("c0", "c0")}
    assert four["c1"] == two["c1"]
    # c0 and c3 have nothing in common, so both precede everything they match.
    ends = [chain[0], chain[3], chain[1], chain[2]]
    assert decide(bench, ends, "ends", **{**settings, "bands": 100, "rows": 6}) == ["c0", "c3"]


def test_connected_documents_are_one_component_unless_first_decides(bench):
    words = WORDS[:700]
    chain = [{"id": f"c{i}", "text": " ".join(words[50 * i : 50 * i + 400])} for i in range(5)]
    ends_first = [chain[i] for i in (0, 4, 1, 2, 3)]
    settings = {"verify": 0.6, "bands": 60, "rows": 5}
    assert len(decide(bench, ends_first, "components", **settings)) == 1
    assert decide(bench, ends_first, "first", survivor="first", **settings) == ["c0", "c4"]


def test_the_record_says_how_it_was_decided(bench):
    for settings, method in (
        ({}, "estimates from the share of common bands"),
        ({"verify": 0.8}, "Similarities are exact"),
    ):
        decide(bench, ROWS, **settings)
        (decided,) = [s["decided"] for s in record(bench)["stages"] if s.get("decided")]
        assert decided["candidates"] == decided["members"] == 4
        assert "14 bands of 8 rows" in decided["notes"][0]
        assert "4 of 5 documents" in decided["notes"][0]
        assert method in decided["notes"][1]
        (curve,) = decided["curves"]
        assert len(curve["x"]) == len(curve["y"]) and curve["mark"][1] == 0.5


def test_another_minimum_similarity_reuses_the_sketches(bench):
    source = bench.jsonl("in.jsonl", ROWS)
    written = set()
    for settings in ({"verify": 0.8}, {"verify": 0.99}, {"verify": 0.9, "threshold": 0.685}):
        bench.run([{"dedup_minhash": settings}], source)
        paths = (bench.folder / "out/stages").rglob("part-*.sketch-*.parquet")
        written |= {(p.name, p.stat().st_mtime_ns) for p in paths}
        assert len(written) == (2 if "threshold" in settings else 1)


def test_texts_without_words_match_nothing_and_short_ones_their_equals(bench):
    texts = ["", "", " ", "...", "...", "one two", "One, two!", "one three", "one"]
    rows = [{"id": str(i), "text": t} for i, t in enumerate(texts)]
    for verify in (None, 1.0):
        kept = decide(bench, rows, f"out-{verify}", verify=verify, survivor="first")
        assert kept == ["0", "1", "2", "3", "4", "5", "7", "8"]


@pytest.mark.parametrize("verify", [None, 0.9])
def test_no_documents_and_no_matches_make_empty_decisions(bench, verify):
    assert decide(bench, [], "none", verify=verify) == []
    assert decide(bench, [ROWS[0], ROWS[4]], "two", verify=verify) == ["a", "e"]
    assert bench.decisions("two") == []


@pytest.mark.parametrize("shingle", ["word", "char", "byte"])
def test_every_kind_of_shingle_finds_near_duplicates(bench, shingle):
    assert sorted(decide(bench, ROWS, shingle=shingle)) == ["b", "e"]
    kept = decide(bench, ROWS, "verified", shingle=shingle, verify=0.9)
    assert sorted(kept) == ["b", "e"]


def test_scripts_without_spaces_are_compared_by_character(bench):
    draw = random.Random(3)
    text = "".join(chr(draw.randrange(0x4E00, 0x5E00)) for _ in range(300))
    rows = [
        {"id": "a", "text": text},
        {"id": "b", "text": text[:290]},
        {"id": "c", "text": text[::-1]},
    ]
    assert decide(bench, rows, verify=0.9) == ["a", "c"]


def test_datatrove_form_matches_what_differs_in_numbers_and_accents(bench):
    rows = [
        {"id": "a", "text": "Le café a coûté 12.50 euros, dit l'homme; en 1999 encore."},
        {"id": "b", "text": "le cafe a coute 3 euros dit l homme en 2024 encore"},
    ]
    assert decide(bench, rows, "lower") == ["a", "b"]
    assert decide(bench, rows, "datatrove", normalize="datatrove") == ["a"]


@pytest.mark.parametrize(
    "settings", mostly_slow([{"verify": 0.8}, {"verify": 0.8, "survivor": "first"}, {}], 2)
)
def test_one_bucket_of_thousands_is_fast(bench, settings):
    rows = [{"id": f"{i:04d}", "text": BASE} for i in range(5000)]
    began = time.perf_counter()
    assert decide(bench, rows, max_removal=1, **settings) == ["0000"]
    assert time.perf_counter() - began < 30
    assert all(d["similarity"] in (None, 1.0) for d in bench.decisions())


def test_presets_set_bands_and_rows_and_are_overridden_by_them():
    assert DedupMinhash().banding == (14, 8)
    assert DedupMinhash(preset="lee2022").banding == (450, 20)
    assert DedupMinhash(preset="dclm", bands=20).banding == (20, 15)
    assert DedupMinhash(verify=0.8).least == 0.8


def test_lee_et_al_verify_what_shares_a_band(bench):
    """At 0.75 three pairs in four share one of 450 bands of 20 rows; Lee et al. ask for 0.8."""
    words = " ".join(f"w{i}" for i in range(104))  # 100 shingles of 5 words
    rows = [{"id": f"a{k}", "text": f"{words} b{k}"} for k in range(2)]
    cut = " ".join(f"w{i}" for i in range(21, 104))  # with its end 80 of 103 shingles
    rows += [{"id": "near", "text": f"{cut} b0 and more"}]
    step = DedupMinhash(preset="lee2022")
    assert (step.banding, step.verify) == ((450, 20), 0.8)
    kept = decide(bench, rows, "verified", preset="lee2022")
    loose = decide(bench, rows, "loose", preset="lee2022", verify=None)
    assert (len(kept), len(loose)) == (2, 1)


def test_a_column_that_is_not_there_is_wrong_use(bench):
    with pytest.raises(LlmcurateError, match="survivor column 'quality' not found") as missing:
        decide(bench, ROWS, survivor="best:quality")
    assert missing.value.exit_code == 2


def test_the_command_prints_the_curve_and_refuses_what_does_not_belong(bench):
    source = bench.jsonl("in.jsonl", ROWS)
    options = ["--method", "minhash", "--bands", "20", "--rows", "5", "--verify", "0.8"]
    done = bench.command("dedup", source, "-o", "out", *options, "--workers", "1")
    assert done.returncode == 0 and "20 bands of 5 rows" in done.stderr
    assert sorted(bench.ids()) == ["b", "e"]
    quiet = bench.command("dedup", source, "-o", "q", "--method", "minhash", "-q", "--dry-run")
    assert quiet.returncode == 0 and quiet.stderr == ""
    for wrong in (["--bands", "3"], ["--method", "minhash", "--key", "url"]):
        done = bench.command("dedup", source, "-o", "no", *wrong)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


@real
def test_simhash_finds_half_of_the_pairs_above_0_9_and_none_below_a_half(versions, pairs):
    from curate.dedup.minhash.kernels import fingerprints
    from curate.dedup.simhash import DedupSimhash

    text = pa.array([row["text"] for row in versions], pa.large_string())
    bits = fingerprints(*DedupSimhash().shingles(text))
    signs = 2 * np.unpackbits(bits[:, None].view(np.uint8), axis=1).astype(np.float32) - 1
    near = np.triu(signs @ signs.T >= 64 - 2 * 3, 1)
    name = {row["id"]: i for i, row in enumerate(versions)}
    jaccard = np.zeros(near.shape)
    for a, b, similarity in pairs:
        jaccard[tuple(sorted((name[a], name[b])))] = similarity
    assert jaccard[near].min() > 0.5
    assert 0.45 < near[jaccard >= 0.9].mean() < 0.55
