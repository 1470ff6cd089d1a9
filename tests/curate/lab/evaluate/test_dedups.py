"""`llmcurate dedup evaluate`: what is planted, what counts as found, and what methods reach."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from curate.dedup.minhash.near_duplicates import predicted
from curate.documents.edits import Edit
from curate.lab.evaluate.dedups import Evaluation, Removed, evaluate, score
from curate.lab.evaluate.planting import KINDS, Plant, Region
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import json_values
from tests.llmcurate.base.pages.structure import check_structure

PLANT = 8
DRAW = random.Random(11)
WORDS = ["".join(DRAW.choices("abcdefghiklmnoprstu", k=DRAW.randint(3, 9))) for _ in range(4000)]


def document(n: int) -> dict[str, Any]:
    """Four paragraphs of 100 words, unlike any other."""
    draw = random.Random(n)
    lines = [" ".join(draw.choices(WORDS, k=100)).capitalize() + "." for _ in range(4)]
    return {"id": f"d{n}", "text": "\n".join(lines), "url": f"https://h.test/{n}"}


def corpus() -> list[dict[str, Any]]:
    """120 documents, of which some are copies already: whole ones, and a line on many pages."""
    rows = [document(n) for n in range(120)]
    rows += [{**document(n), "id": f"old-copy-{n}"} for n in range(10)]
    for row in rows[20:60]:
        row["text"] += "\nThis line closes a third of the pages, and is cut from all but one.\n"
    return rows


@pytest.fixture(scope="module")
def evaluated(shared_bench: Any) -> tuple[Evaluation, Path]:
    source = shared_bench.jsonl("in.jsonl", corpus())
    out = shared_bench.folder / "out"
    sets = ("dedup_passages.min_sentences=0",)
    methods = ["exact", "minhash", "lines"]
    return evaluate([str(source)], methods, sets, out, PLANT, 5, 1000, 1, True), out


def kinds(evaluation: Evaluation, method: str) -> dict[str, Any]:
    (scored,) = [s for s in evaluation.scores if s.method == method]
    return {k.kind: k for k in scored.kinds}


def test_regions_of_a_plant_hold_the_same_text(evaluated: Any) -> None:
    evaluation, out = evaluated
    rows = pq.read_table(out / "planted/documents.parquet").to_pylist()
    texts = {row["id"]: row["text"].encode() for row in rows}
    original = {row["id"]: row["text"] for row in corpus()}
    used: list[str] = []
    for plant in evaluation.planted.plants:
        original_text, copied_text = (
            texts[r.id][r.start : r.end] for r in (plant.original, plant.copy)
        )
        if plant.kind.startswith("near"):
            assert original_text != copied_text
            assert abs(plant.similarity - float(plant.kind.split()[1])) <= 0.01
        else:
            assert original_text == copied_text
        used += [plant.original.id, plant.copy.id]
        assert texts[plant.original.id].decode() == original[plant.original.id]
    assert len(used) == len(set(used)) and not any(i.startswith("old-copy") for i in used)
    assert len(rows) == len(corpus()) + 7 * PLANT
    count = {kind: sum(p.kind == kind for p in evaluation.planted.plants) for kind in KINDS}
    assert count == dict.fromkeys(KINDS, PLANT)


def test_planted_duplicates_are_never_preferred_to_the_originals(evaluated: Any) -> None:
    _, out = evaluated
    for method in ("exact", "lines"):
        decisions = pq.read_table(out / f"runs/{method}/after/decisions.parquet")
        kept = set(decisions["kept_id"].to_pylist())
        assert kept and not any(name.startswith("~planted") for name in kept)


def test_exact_finds_every_planted_copy_and_nothing_else(evaluated: Any) -> None:
    evaluation, _ = evaluated
    by_kind = kinds(evaluation, "exact")
    assert by_kind["exact"].recall == 1.0
    assert all(k.found == 0 for name, k in by_kind.items() if name != "exact")
    (scored,) = [s for s in evaluation.scores if s.method == "exact"]
    assert (scored.right_documents, scored.false_documents) == (PLANT, 0)
    assert scored.precision == scored.byte_precision == 1.0


def test_minhash_finds_what_its_curve_says(evaluated: Any) -> None:
    by_kind = kinds(evaluated[0], "minhash")
    assert by_kind["exact"].recall == 1.0
    for name, kind in by_kind.items():
        if name.startswith("near"):
            assert kind.expected == pytest.approx(predicted(14, 8, kind.similarity), abs=0.02)
            chance = [
                math.comb(PLANT, k) * kind.expected**k * (1 - kind.expected) ** (PLANT - k)
                for k in range(PLANT + 1)
            ]
            # Neither so few nor so many that chance would give them once in ten thousand times.
            assert sum(chance[: kind.found + 1]) > 1e-4 and sum(chance[kind.found :]) > 1e-4
    assert by_kind["near 0.95"].recall == 1.0 and by_kind["near 0.5"].recall < 0.7


def test_lines_finds_paragraphs_and_no_run_in_mid_line(evaluated: Any) -> None:
    evaluation, _ = evaluated
    by_kind = kinds(evaluation, "lines")
    assert by_kind["paragraph"].recall == by_kind["exact"].recall == 1.0
    assert by_kind["substring"].recall == 0.0
    (scored,) = [s for s in evaluation.scores if s.method == "lines"]
    # The line that closed many pages before does not count against the method. White space that
    # goes with a cut does.
    assert scored.byte_precision > 0.99 and scored.false_documents == 0


def test_the_table_and_the_page_show_theory_beside_minhash(evaluated: Any) -> None:
    evaluation, out = evaluated
    printed = evaluation.text()
    assert f"130 documents with {9 * PLANT} plants, seed 5" in printed
    assert "theory" in printed and "near 0.95 (0.9" in printed
    page = (out / "evaluation.html").read_text()
    check_structure(page)
    labels = [re.findall(r'x="([^"]+)" y="191"[^>]*>', svg) for svg in page.split("<svg")[1:]]
    assert labels[0] and labels == labels[:1] * 3  # the labels of the x axes
    assert "S-curve of 14 bands of 8 rows" in page and page.count("<svg") == 3
    data = json.loads((out / "evaluation.json").read_text())
    assert data["methods"][0]["kinds"][0]["recall"] == 1.0


def test_the_same_seed_plants_the_same(evaluated: Any, shared_bench: Any) -> None:
    evaluation, out = evaluated
    stamp = (out / "planted/documents.parquet").stat().st_mtime_ns
    source = [str(shared_bench.folder / "in.jsonl")]
    sets = ("dedup_passages.min_sentences=0",)
    again = evaluate(source, ["exact", "minhash", "lines"], sets, out, PLANT, 5, 1000, 1, True)
    assert json_values(again) == json_values(evaluation)
    assert (out / "planted/documents.parquet").stat().st_mtime_ns == stamp


def test_a_corpus_of_duplicates_only_cannot_be_planted(bench: Any) -> None:
    rows = [{"id": f"d{n}", "text": "the same words " * 50} for n in range(5)]
    source = [str(bench.jsonl("in.jsonl", rows))]
    with pytest.raises(UsageError, match="nothing to plant copies of"):
        evaluate(source, ["exact"], (), bench.folder / "out", 2, 0, 10, 1, True)


PAIR = Plant("exact", Region("a", 0, 100), Region("p", 0, 100), 1.0)
PASSAGE = Plant("paragraph", Region("b", 10, 60), Region("c", 0, 50))


def cut(start: int, end: int) -> list[Edit]:
    return [Edit("s", "r", start, end, None)]


def test_dropping_either_duplicate_is_right_and_dropping_both_is_a_loss() -> None:
    scored = score("m", [PAIR], Removed(), Removed({"a"}, 100), None)
    assert (scored.kinds[0].found, scored.right_documents, scored.false_documents) == (1, 1, 0)
    assert (scored.right_bytes, scored.false_bytes) == (100, 0)
    both = score("m", [PAIR], Removed(), Removed({"a", "p"}, 200), None)
    assert (both.right_documents, both.false_documents, both.false_bytes) == (1, 1, 100)
    none = score("m", [PAIR], Removed(), Removed({"z"}, 70), None)
    assert (none.kinds[0].found, none.false_documents, none.false_bytes) == (0, 1, 70)
    assert none.precision == 0.0


def test_documents_dropped_before_planting_do_not_count() -> None:
    old = Removed({"z"}, 70)
    same = score("m", [PAIR], old, Removed({"z"}, 70), None)
    assert (same.false_documents, same.false_bytes, same.precision) == (0, 0, None)
    already = score(
        "m", [PASSAGE], Removed({"b"}, 100), Removed({"b"}, 150, {"c": cut(0, 50)}), None
    )
    assert (already.kinds[0].planted, already.kinds[0].already) == (0, 1)
    assert (already.right_bytes, already.false_bytes) == (50, 0)


def test_passages_count_by_their_bytes() -> None:
    most = score("m", [PASSAGE], Removed(), Removed(set(), 48, {"c": cut(0, 48)}), None)
    assert (most.kinds[0].found, most.kinds[0].bytes) == (1, 0.96)
    half = score(
        "m", [PASSAGE], Removed(), Removed(set(), 45, {"b": cut(0, 35), "c": cut(50, 60)}), None
    )
    assert (half.kinds[0].found, half.kinds[0].bytes) == (0, 0.5)
    assert (half.right_bytes, half.false_bytes) == (25, 20)
