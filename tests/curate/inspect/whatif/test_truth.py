"""What-if's estimates beside runs with the same settings, of many kinds of changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from curate.demo.web import build_web
from curate.inspect.whatif.figures import answer

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[5] / "shared"))
WCXB = SHARED / "corpora" / "wcxb" / "dev.warc.gz"
GOPHER = [
    {"gopher_repetition": {"variant": "datatrove"}},
    {"gopher_quality": {"variant": "datatrove"}},
]
RECIPES: dict[str, list[Any]] = {
    "fineweb": [*GOPHER, "c4", "fineweb_quality", "dedup_minhash", "pii"],
    "dedups first": [
        {"dedup_exact": {"key": "url"}}, "dedup_exact", "dedup_minhash", *GOPHER, "c4", "cut",
        {"document_length": {"min": 60}},
    ],
    "passages": [
        "gopher_quality", "dedup_exact", {"dedup_passages": {}}, {"document_length": {"min": 80}},
        {"dedup_minhash": {"verify": 0.7}},
    ],
}  # fmt: skip
CHANGES: list[tuple[str, tuple[str, ...]]] = [
    ("fineweb", ("gopher_quality.min_alpha_words=0.7",)),
    ("fineweb", ("gopher_quality.min_words=200",)),
    ("fineweb", ("gopher_repetition.max_duplicate_paragraphs=1",)),
    ("fineweb", ("c4.min_sentences=8",)),
    ("fineweb", ("c4.min_words_per_line=5", "gopher_quality.min_alpha_words=0.6")),
    ("fineweb", ("fineweb_quality.max_duplicate_chars=0.3",)),
    ("fineweb", ("dedup_minhash.bands=40",)),
    ("dedups first", ("dedup_minhash.threshold=0.5",)),
    ("fineweb", ("c4.min_words_per_line=1",)),
    ("dedups first", ("dedup_exact.key=text", "gopher_quality.min_words=10")),
    ("dedups first", ("gopher_quality.min_stop_words=0", "document_length.min=20")),
    ("passages", ("gopher_quality.min_words=120",)),
    ("passages", ("gopher_quality.min_words=20", "document_length.max=3000")),
]


class Pair(NamedTuple):
    """A pair of recipe and change: documents kept before, by the estimate, and in truth."""

    corpus: str
    recipe: str
    sets: tuple[str, ...]
    before: int
    low: int
    estimate: int
    high: int
    truth: int

    @property
    def lies_inside(self) -> bool:
        return self.low <= self.truth <= self.high

    @property
    def width(self) -> float:
        return (self.high - self.low) / max(1, self.truth)


def pair(bench: Any, corpus: str, recipe: str, sets: tuple[str, ...], most: int = 0) -> Pair:
    out = f"{corpus} {recipe}"
    steps, inputs = RECIPES[recipe], bench.folder / f"{corpus} texts" / "corpus"
    if not (bench.folder / out).exists():
        bench.run(steps, inputs, out=out)
    answered = answer(bench.folder / out, sets, most, quiet=True)
    bench.run(steps, inputs, out=f"{out} now", sets=sets)
    low, estimate, high = (
        amount.documents
        for amount in (answered.after.low, answered.after.estimate, answered.after.high)
    )
    truth = len(bench.ids(f"{out} now"))
    return Pair(corpus, recipe, sets, answered.before.documents, low, estimate, high, truth)


def table(pairs: list[Pair]) -> str:
    return "\n".join(
        f"{p.corpus:5} {p.recipe:13} {p.before:5} -> {p.estimate:5} ({p.low} to {p.high})"
        f" truth {p.truth:5} {'' if p.lies_inside else 'OUTSIDE '}{p.width:.1%} {' '.join(p.sets)}"
        for p in pairs
    )


@pytest.fixture(scope="module")
def bench(shared_bench: Any) -> Any:
    web = build_web(shared_bench.folder / "web")
    shared_bench.run(["extract"], *web.paths, out="demo texts")
    return shared_bench


@pytest.mark.parametrize("number", [0, 7, 10])
def test_an_exact_whatif_answer_equals_a_run(bench: Any, number: int) -> None:
    measured = pair(bench, "demo", *CHANGES[number])
    assert measured.low == measured.estimate == measured.high == measured.truth


@pytest.mark.slow
def test_the_truth_lies_in_nine_of_ten_narrow_intervals(bench: Any) -> None:
    if not WCXB.exists():
        pytest.skip(f"{WCXB} is not here")
    bench.run(["extract"], WCXB, out="wcxb texts")
    pairs = [pair(bench, corpus, *change) for corpus in ("wcxb", "demo") for change in CHANGES]
    sampled = [pair(bench, "wcxb", *change, most=100) for change in CHANGES]
    print(table(pairs + sampled))
    assert sum(p.lies_inside for p in sampled) >= 0.9 * len(sampled), "\n" + table(sampled)
    good = [p for p in pairs if p.lies_inside and p.width <= 0.05]
    assert len(good) >= 0.9 * len(pairs), "\n" + table(pairs)
