"""`llmcurate dedup evaluate`: what methods find of copies planted in a corpus of one's own.

OUT/base holds a sample of the input, OUT/planted the same with plants; every method runs over both,
in OUT/runs/METHOD.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.dedup.minhash.banding import predicted
from curate.dedup.minhash.step import DedupMinhash
from curate.dedup.step import DedupStep
from curate.disk.atomic import write_text
from curate.errors import UsageError
from curate.inspect.compare.compare import check_text
from curate.inspect.compare.corpus_sample import draw
from curate.inspect.compare.method_run import folder_of, recipes_of
from curate.inspect.evaluate import planting
from curate.inspect.evaluate.dedups_scoring import MethodScore, gone, score
from curate.inspect.evaluate.planting import Plant, Planted
from curate.inspect.report.write import write_records
from curate.run.driver import Options, Outcome, make_plan, run_planned
from curate.steps.recipe import Recipe
from curate.terminal.progress import say

DOCUMENTS = 10_000


@dataclass(frozen=True)
class Evaluation:
    """documents: of the input; sampled: those that were used; curves: of methods with MinHash,
    (bands, rows) where theory says what they find."""

    inputs: list[str]
    sets: list[str]
    seed: int
    documents: int
    sampled: int
    planted: Planted
    scores: list[MethodScore]
    curves: dict[str, tuple[int, int]]

    def dump(self) -> dict[str, Any]:
        """The content of evaluate.json."""
        return {
            "inputs": self.inputs,
            "settings": self.sets,
            "seed": self.seed,
            "documents": self.documents,
            "sampled": self.sampled,
            "methods": [s.dump() for s in self.scores],
            "plants": [asdict(p) for p in self.planted.plants],
        }


def evaluate(
    inputs: list[str],
    methods: list[str],
    sets: tuple[str, ...],
    out: Path,
    each: int = 20,
    seed: int = 0,
    documents: int = DOCUMENTS,
    workers: int = 0,
    quiet: bool = False,
) -> Evaluation:
    """Plants `each` copies of every kind, runs the methods, and scores them.

    The same for the same inputs and seed. UsageError where a method, a setting or an input is
    wrong, or nothing can be planted.
    """
    recipes = recipes_of(methods, (*sets, *_unguarded(methods, sets)))
    check_text(inputs)
    if out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    base, with_plants = (out / n / "documents.parquet" for n in ("base", "planted"))
    read = next(iter(recipes.values())).read
    count = draw(inputs, read, documents, seed, base)
    options = Options(workers, quiet)
    runs = {}
    for method, recipe in recipes.items():
        say(f"{method}: over the corpus as it is", quiet)
        runs[method] = _run(recipe, base, out, method, "before", options)
    planted = planting.plan(base, _untouched(runs.values()), each, seed, _similarity())
    planting.write(base, planted, with_plants)
    asked = {r.id for p in planted.plants for r in (p.original, p.copy)}
    scores, curves = [], {}
    for method, recipe in recipes.items():
        say(f"{method}: with {len(planted.plants)} plants", quiet)
        after = _run(recipe, with_plants, out, method, "after", options)
        labels = [s.label for s in recipe.steps]
        old, new = (gone(run.out, labels, asked) for run in (runs[method], after))
        theory = _theory(recipe)
        if theory is not None:
            curves[method] = theory.banding
        expected = None if theory is None else _expected(theory, planted.plants)
        scores.append(score(method, planted.plants, old, new, expected))
    sampled = pq.ParquetFile(base).metadata.num_rows
    found = Evaluation(list(inputs), list(sets), seed, count, sampled, planted, scores, curves)
    _write(found, out)
    return found


def _unguarded(methods: Iterable[str], sets: Iterable[str]) -> list[str]:
    """Settings that let a method remove all it finds, unless the user says otherwise."""
    given = {s.partition("=")[0].strip() for s in sets}
    labels = {
        s.label
        for r in recipes_of(methods, ()).values()
        for s in r.steps
        if isinstance(s, DedupStep)
    }
    keys = [f"{label}.max_removal" for label in sorted(labels)]
    return [f"{key}=1.0" for key in keys if key not in given]


def _run(
    recipe: Recipe, source: Path, out: Path, method: str, when: str, options: Options
) -> Outcome:
    target = folder_of(out / "runs", method) / when
    return run_planned(make_plan(recipe, [str(source)]), target, options, write_records)


def _untouched(runs: Iterable[Outcome]) -> Callable[[Iterable[str]], set[str]]:
    """Which of some ids no run took for a copy of another document, or for its original."""
    taken: set[str] = set()
    for run in runs:
        table = pq.read_table(run.out / "decisions.parquet", columns=["id", "span_start"])
        taken |= set(table.filter(table["span_start"].is_null())["id"].to_pylist())
        for path in sorted((run.out / "rejected").glob("part-*.parquet")):
            taken |= set(pq.read_table(path, columns=["id"])["id"].to_pylist())
    return lambda ids: set(ids) - taken


def _similarity() -> Callable[[str, str], float]:
    """Jaccard similarity of the sets of word 5-grams as MinHash has them."""
    step = DedupMinhash()

    def shingles(text: str) -> np.ndarray:
        return step.shingles(pa.array([text], pa.large_string()))[1]

    known: dict[str, np.ndarray] = {}

    def similarity(original: str, copy: str) -> float:
        if original not in known:
            known.clear()
            known[original] = shingles(original)
        a, b = known[original], shingles(copy)
        both = len(np.intersect1d(a, b, assume_unique=True))
        return both / max(1, len(a) + len(b) - both)

    return similarity


def _theory(recipe: Recipe) -> DedupMinhash | None:
    """The MinHash step whose S-curve the plants' similarities fit; None without one."""
    for step in recipe.steps:
        if isinstance(step, DedupMinhash):
            same = (step.shingle or "word") == "word" and (step.ngram or 5) == 5
            return step if same and step.normalize == "lower" else None
    return None


def _expected(step: DedupMinhash, plants: Iterable[Plant]) -> dict[Plant, float]:
    """By plant with a similarity, the probability that the step finds it."""
    found = {}
    for plant in plants:
        if plant.similarity is not None:
            passes = step.verify is None or plant.similarity >= step.verify
            found[plant] = predicted(*step.banding, plant.similarity) if passes else 0.0
    return found


def _write(found: Evaluation, out: Path) -> None:
    """OUT/evaluate.json and OUT/evaluate.html."""
    from curate.inspect.evaluate.dedups_page import render

    for name, text in (
        ("evaluate.json", json.dumps(found.dump(), indent=1, ensure_ascii=False) + "\n"),
        ("evaluate.html", render(found)),
    ):
        write_text(out / name, text.encode("utf-8", "replace").decode("utf-8"))
