"""The evaluation of dedup methods: the share they find of copies planted in a corpus.

OUT/base holds a sample of the input, OUT/planted the same with plants; every method runs over both,
in OUT/runs/METHOD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.dedup.minhash.banding import predicted
from curate.dedup.minhash.step import DedupMinhash
from curate.dedup.step import DedupStep
from curate.documents.rejected import rejected_files
from curate.inspect import results
from curate.inspect.compare.method_run import folder_of, recipes_of
from curate.inspect.evaluate import planting
from curate.inspect.evaluate.dedups_scoring import FOUND, MethodScore, gone, score
from curate.inspect.evaluate.planting import Plant, Planted, draw
from curate.run.driver import Options, Outcome, run_planned
from curate.run.plan import make_plan
from curate.steps.recipe import Recipe
from llmcurate.base.disk.units import counted, format_bytes, format_percent
from llmcurate.base.pages import templates
from llmcurate.base.terminal.progress import say
from llmcurate.base.terminal.tables import table

DOCUMENTS = 10_000
CURVE = [0.4 + n / 100 for n in range(61)]  # similarities at which theory is drawn


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
        """The content of evaluation.json."""
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
    recipes = recipes_of(methods, (*_unguarded(methods), *sets))
    make_plan(next(iter(recipes.values())), inputs)
    results.check_folder(out)
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
    evaluation = Evaluation(list(inputs), list(sets), seed, count, sampled, planted, scores, curves)
    results.write(out, evaluation.dump(), render(evaluation))
    return evaluation


def _unguarded(methods: Iterable[str]) -> list[str]:
    """Settings that let a method remove all it finds."""
    labels = {
        s.label
        for r in recipes_of(methods, ()).values()
        for s in r.steps
        if isinstance(s, DedupStep)
    }
    return [f"{label}.max_removal=1.0" for label in sorted(labels)]


def _run(
    recipe: Recipe, source: Path, out: Path, method: str, when: str, options: Options
) -> Outcome:
    target = folder_of(out / "runs", method) / when
    return run_planned(make_plan(recipe, [str(source)]), target, options)


def _untouched(runs: Iterable[Outcome]) -> Callable[[Iterable[str]], set[str]]:
    """Which of some ids no run took for a copy of another document, or for its original."""
    taken: set[str] = set()
    for run in runs:
        table = pq.read_table(run.out / "decisions.parquet", columns=["id", "span_start"])
        taken |= set(table.filter(table["span_start"].is_null())["id"].to_pylist())
        for path in rejected_files(run.out):
            taken |= set(pq.read_table(path, columns=["id"])["id"].to_pylist())
    return lambda ids: set(ids) - taken


def _similarity() -> Callable[[str, str], float]:
    """Jaccard similarity of the sets of word 5-grams as MinHash has them."""
    step = DedupMinhash()

    def shingles(text: str) -> np.ndarray:
        return step.shingles(pa.array([text], pa.large_string()))[1]

    last: dict[str, np.ndarray] = {}  # the shingles of the latest original

    def similarity(original: str, copy: str) -> float:
        if original not in last:
            last.clear()
            last[original] = shingles(original)
        a, b = last[original], shingles(copy)
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
    expected = {}
    for plant in plants:
        if plant.similarity is not None:
            passes = step.verify is None or plant.similarity >= step.verify
            expected[plant] = predicted(*step.banding, plant.similarity) if passes else 0.0
    return expected


def render(evaluation: Evaluation) -> str:
    """evaluation.html."""
    links = {
        scored.method: quote(f"runs/{scored.method.replace(' ', '')}/after/report.html")
        for scored in evaluation.scores
    }
    curves = _curves(evaluation)
    xs = [x for _, lines, _ in curves for line in lines for x, _ in line]
    return templates.render(
        "evaluate/dedups.html",
        evaluation=evaluation,
        about=_about(evaluation),
        threshold=FOUND,
        report_links=links,
        curves=curves,
        x_range=(min(xs), max(xs)) if xs else None,
    )


def _curves(evaluation: Evaluation) -> list[tuple[str, list[Any], str]]:
    """(method, lines, caption): the share of plants that a method found, by similarity."""
    curves = []
    for scored in evaluation.scores:
        points = sorted(
            (kind.similarity, kind.recall)
            for kind in scored.kinds
            if kind.similarity is not None and kind.recall is not None
        )
        if len(points) < 2:
            continue
        lines, caption = [points], "found"
        if scored.method in evaluation.curves:
            bands, rows = evaluation.curves[scored.method]
            lines = [[(s, predicted(bands, rows, s)) for s in CURVE], points]
            caption = f"line: the S-curve of {bands} bands of {counted(rows, 'row')}; dots: found"
        curves.append((scored.method, lines, caption))
    return curves


def text(evaluation: Evaluation) -> str:
    """Kinds of plants down, methods across."""
    scores = evaluation.scores
    head = ["planted", "n"]
    for scored in scores:
        head += [scored.method, *(["theory"] if scored.method in evaluation.curves else [])]
    rows = []
    for nth, kind in enumerate(scores[0].kinds):
        row = [kind.title, str(kind.planted + kind.already)]
        for scored in scores:
            figures = scored.kinds[nth]
            row.append(format_percent(figures.recall) + ("*" if figures.already else ""))
            if scored.method in evaluation.curves:
                row.append("" if figures.expected is None else format_percent(figures.expected))
        rows.append(row)
    for name, values in (
        ("precision, documents", [format_percent(s.precision) for s in scores]),
        ("precision, bytes", [format_percent(s.byte_precision) for s in scores]),
        ("falsely removed documents", [f"{s.false_documents:,}" for s in scores]),
        ("falsely removed text", [format_bytes(s.false_bytes) for s in scores]),
    ):
        row = [name, ""]
        for scored, value in zip(scores, values, strict=True):
            row += [value, *([""] if scored.method in evaluation.curves else [])]
        rows.append(row)
    lines = [
        _about(evaluation),
        *table(head, rows),
        f"found: at least {FOUND:.0%} of one of the two copies is gone. theory: the S-curve of"
        " MinHash",
        "at the measured similarities. Copies that were there before do not count.",
    ]
    if any(kind.already for scored in scores for kind in scored.kinds):
        lines.append("*: without plants of which the method removes the original anyway")
    return "\n".join(lines)


def _about(evaluation: Evaluation) -> str:
    sampled, plants = evaluation.sampled, len(evaluation.planted.plants)
    of = f" of {evaluation.documents:,}" if evaluation.documents > sampled else ""
    return f"{sampled:,}{of} documents with {plants:,} plants, seed {evaluation.seed}"
