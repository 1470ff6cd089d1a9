"""Head, middle and tail of a corpus by its perplexities: exact percentiles, buckets, histograms.

CCNet compares strictly: under the first cut is head, under the second middle, else tail; documents
without a model, or without a word, are `all`. What is under a percentile given for it is `low`.
Scores are of documents, or lists of those of their paragraphs. Tasks on groups of sketch files run
in three phases: seen -> cuts -> pieces. The caller keeps nothing of the documents; it copies the
pieces of decisions into one file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from curate.corpus.decisions import COLUMNS, ROWS, join_pieces, piece_files, write_piece
from curate.corpus.phases import Done, Phase, forget, run_phases
from curate.corpus.ranks import find_ranks, score_totals, write_counts
from curate.corpus.shuffle.tasks import Group, groups, run_tasks
from curate.corpus.sketches import Sketches, Task, sketch_batches

if TYPE_CHECKING:
    from curate.scoring.perplexity.perplexity import Perplexity

BUCKETS = ("head", "middle", "tail", "all", "low")
ALL, LOW = BUCKETS.index("all"), BUCKETS.index("low")
BINS = 40
MOST = 1e300  # perplexities above, infinite ones too, stand in the last bin
Cuts = dict[str, tuple[float, float, float]]  # where head ends, tail begins, low ends


def ranks_between(scores: int, percent: float) -> tuple[int, int]:
    """The ranks (from 0) that a percentile of so many scores lies between."""
    place = (scores - 1) * percent / 100
    return math.floor(place), math.ceil(place)


def percentile(scores: int, ranked: dict[int, float], percent: float) -> float:
    """The exact percentile, between ranks by the straight line, as numpy has it. ranked: scores by
    rank. Infinite scores rank above all others, and a percentile between two of them is infinite,
    where numpy has NaN."""
    low, high = (ranked[rank] for rank in ranks_between(scores, percent))
    if low == high:
        return low
    place = (scores - 1) * percent / 100
    return low + (high - low) * (place - math.floor(place))


def bucket_of(
    score: np.ndarray, head: np.ndarray, tail: np.ndarray, low: np.ndarray | float = 0.0
) -> np.ndarray:
    """int8[rows]: places in BUCKETS; all are float64[rows], NaN: no score, or no cuts."""
    buckets = np.where(score < head, 0, np.where(score < tail, 1, 2))
    buckets = np.where(score < low, LOW, buckets)
    return np.where(np.isnan(score) | np.isnan(head), ALL, buckets).astype(np.int8)


def bins_of(low: float, high: float) -> tuple[float, float]:
    """(logarithm where the first bin begins, width) of bins from the least to the greatest score,
    of equal width of the logarithm."""
    least, most = math.log10(1 + min(low, MOST)), math.log10(1 + min(high, MOST))
    return least, max((most - least) / BINS, 1e-6)


def bin_counts(score: np.ndarray, least: float, width: float) -> np.ndarray:
    """int64[BINS]: scores by bin."""
    place = np.floor((np.log10(1 + np.minimum(score, MOST)) - least) / width)
    return np.bincount(np.clip(place, 0, BINS - 1).astype(np.int64), minlength=BINS)


def histogram(counts: np.ndarray, least: float, width: float) -> dict[str, Any]:
    """As inspect/report/bins.py dumps them."""
    edges = 10 ** (least + width * np.arange(BINS + 1)) - 1
    return {
        "scale": "log",
        "edges": [round(e, 6) for e in edges.tolist()],
        "counts": counts.tolist(),
    }


MOST_LANGS = 50  # in the report


CUTS = ("head", "tail", "low")  # the last is read where the scores of a document are several


def _schema(first: bool, paragraphs: bool) -> pa.Schema:
    number = pa.float64()
    columns = [("score", pa.list_(number) if paragraphs else number), ("bucket", pa.string())]
    cuts = CUTS if paragraphs else CUTS[:2]
    columns += [(name, number) for name in (*cuts, *(["first"] if first else []))]
    return pa.schema([*COLUMNS, *columns])


def _cuts(
    step: Perplexity, sketches: Sketches, folder: Path, file_groups: list[Group], counted: Path
) -> Cuts:
    """By language; a language without a score has none."""
    if step.cutoffs == "ccnet":
        from curate.scoring.perplexity.ccnet import CUTOFFS

        return {lang: (*cuts, 0.0) for lang, cuts in CUTOFFS.items()}
    seen = score_totals(sketches.connection, counted, len(file_groups))
    scored = {lang: scores for lang, (_, scores, *_) in seen.items() if scores}
    percents = (step.head, step.tail, *([step.low] if step.low else []))
    ranks = {
        lang: sorted({r for p in percents for r in ranks_between(scores, p)})
        for lang, scores in scored.items()
    }
    if not ranks:
        return {lang: (*cuts, 0.0) for lang, cuts in step.cuts.items()}
    run, db = sketches.run, sketches.connection
    ranked = find_ranks(run, db, folder, file_groups, counted, ranks, by_lang=True)
    cuts: Cuts = {}
    for lang, n in scored.items():
        head, tail = (percentile(n, ranked[lang], p) for p in percents[:2])
        low = percentile(n, ranked[lang], step.low) if step.low else 0.0
        cuts[lang] = (*step.cuts.get(lang, (head, tail)), low)
    return {lang: (*pair, 0.0) for lang, pair in step.cuts.items()} | cuts


def resolve(step: Perplexity, sketches: Sketches) -> dict[str, Any]:
    """Writes the decisions; returns figures by language."""
    file_groups = groups(sketches, sketches.sizes.task_documents)
    first, paragraphs = step.repeats, step.by == "paragraph"

    def seen(folder: Path, done: Done) -> dict[str, Any]:
        write_counts(sketches.run, folder, file_groups, by_lang=True)
        return {}

    def cuts(folder: Path, done: Done) -> dict[str, Any]:
        counted = done.folder("seen")
        by_lang = score_totals(sketches.connection, counted, len(file_groups))
        shown = sorted(by_lang, key=lambda lang: (-by_lang[lang][0], lang))[:MOST_LANGS]
        bins = {g: bins_of(*by_lang[g][2:]) for g in shown if by_lang[g][1]}
        return {
            "cuts": _cuts(step, sketches, folder, file_groups, counted),
            "shown": shown,
            "bins": bins,
        }

    def pieces(folder: Path, done: Done) -> dict[str, Any]:
        shared = {**done.facts, "first": first, "paragraphs": paragraphs, "folder": str(folder)}
        tasks = [{**group.dump(), **shared} for group in file_groups]
        answers = run_tasks(sketches.run, f"{__name__}:write_pieces", tasks)
        buckets: dict[str, Counter[str]] = {lang: Counter() for lang in done.facts["shown"]}
        counts: dict[str, list[int]] = {}
        for answer in answers:
            for lang, figures in answer["buckets"].items():
                buckets[lang].update(figures)
            for lang, figures in answer["bins"].items():
                counts[lang] = (np.array(counts.get(lang, 0)) + np.array(figures)).tolist()
        return {
            "buckets": {g: dict(sorted(b.items())) for g, b in buckets.items()},
            "counts": counts,
        }

    phases = [
        Phase("seen", seen),
        Phase("cuts", cuts, frees=("seen",)),
        Phase("pieces", pieces),
    ]
    done = run_phases(sketches.folder, phases)
    schema = _schema(first, paragraphs)
    join_pieces(sketches.decisions, schema, piece_files(done.folder("pieces"), len(file_groups)))
    facts = done.facts
    forget(sketches.folder)
    figures = {lang or "(none)": _figures(facts, lang, step) for lang in facts["shown"]}
    return {"perplexity": figures}


def _figures(facts: dict[str, Any], lang: str, step: Perplexity) -> dict[str, Any]:
    """Of a language: cuts, documents (or paragraphs) by bucket, a histogram where it has scores."""
    *cuts, low = facts["cuts"].get(lang, (0.0,))
    figures = {"by": step.by, "buckets": facts["buckets"][lang], "cuts": cuts}
    if low:
        figures["low"] = low
    if lang in facts["bins"]:
        figures["histogram"] = histogram(np.array(facts["counts"][lang]), *facts["bins"][lang])
    return figures


def write_pieces(task: Task) -> dict[str, Any]:
    """A task: the decisions on a group's documents. Held is a batch. Returns, by language of those
    that are shown, documents by bucket and scores by bin."""
    group = Group.load(task)
    buckets: dict[str, Counter[str]] = {}
    bins: dict[str, Any] = {}
    path = piece_files(Path(task["folder"]), group.part + 1)[-1]
    schema = _schema(task["first"], task["paragraphs"])
    write_piece(path, schema, _pieces(task, group, buckets, bins))
    return {
        "buckets": {lang: dict(counts) for lang, counts in buckets.items()},
        "bins": {lang: counts.tolist() for lang, counts in bins.items()},
    }


def _pieces(
    task: Task, group: Group, buckets: dict[str, Counter[str]], bins: dict[str, Any]
) -> Iterator[pa.RecordBatch]:
    columns = ["lang", "score", *(["first"] if task["first"] else [])]
    schema, shown = _schema(task["first"], task["paragraphs"]), set(task["shown"])
    names = pa.array(BUCKETS, pa.string())
    for batch in sketch_batches(group.files, columns, ROWS):
        coded = batch["lang"].dictionary_encode()
        langs, code = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        cuts = np.array([task["cuts"].get(g) or (np.nan,) * 3 for g in langs]).reshape(-1, 3)
        score = batch["score"]
        each = np.arange(len(batch))  # the document of each score
        if task["paragraphs"]:
            each, score = score.value_parent_indices().to_numpy(), score.flatten()
        values = score.cast(pa.float64()).to_numpy(zero_copy_only=False)
        bucket = bucket_of(values, *cuts[code[each]].T)
        for number, lang in enumerate(langs):
            if lang not in shown:
                continue
            of_lang = code[each] == number
            counts = np.bincount(bucket[of_lang], minlength=len(BUCKETS)).tolist()
            held = buckets.setdefault(lang, Counter())
            held.update({name: n for name, n in zip(BUCKETS, counts, strict=True) if n})
            if lang in task["bins"]:
                some = values[of_lang]
                histogram_counts = bin_counts(some[~np.isnan(some)], *task["bins"][lang])
                bins[lang] = bins.get(lang, 0) + histogram_counts
        rows = len(batch)
        out = {name: batch[name] for name in ("part", "n", "id", "score")}
        out |= {"drop": pa.repeat(pa.scalar(False), rows)}
        out |= {"method": pa.repeat(pa.scalar("perplexity"), rows)}
        if not task["paragraphs"]:
            out |= {"bucket": names.take(pa.array(bucket))}
        for name, of_name in zip(CUTS, cuts[code].T, strict=True):
            out[name] = pa.array(of_name, mask=np.isnan(of_name))
        if task["first"]:
            out["first"] = batch["first"]
        arrays = [
            out[f.name].cast(f.type) if f.name in out else pa.nulls(rows, f.type) for f in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
