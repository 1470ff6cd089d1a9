"""The step `quality`: score each document with a classifier and decide which documents to keep.

There are three ways to decide. `threshold` is the lowest score to keep. `keep_fraction` is the
share of documents to keep, from which the threshold is computed. `pareto` is the shape of GPT-3's
random draw. By default all documents are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import xxhash
from pydantic import Field, PrivateAttr, model_validator

from curate.corpus.decisions import (
    COLUMNS,
    PIECE,
    ROWS,
    Decided,
    completed,
    join_pieces,
    write_piece,
)
from curate.corpus.phases import Done, Facts, Phase, forget, run_phases
from curate.corpus.ranks import ALL, find_ranks, score_totals, write_counts
from curate.corpus.shuffle.tasks import GroupTask, groups, part_files, run_tasks
from curate.corpus.sketches import Sketches, sketch_batches
from curate.documents.documents import NUMBER, Documents
from curate.documents.limits import Limit, decide
from curate.scoring.quality.measures import kept_count
from curate.scoring.quality.model import VARIABLE, Classifier, effective, good_label
from curate.steps.contracts import (
    CorpusStep,
    Explains,
    FromFiles,
    Identity,
    Kinds,
    Settings,
    Step,
    step,
)
from llmcurate.base.disk.files import file_digest
from llmcurate.base.errors import UsageError

EXPLAINED = 12  # words and n-grams that `explain` lists
_KEY = "quality\0"  # makes this draw independent of others with the same ids and seed


def pareto_draws(ids: pa.Array, alpha: float, seed: int) -> np.ndarray:
    """Return float64[rows]: a pseudo-random number for each id, distributed as
    `np.random.pareto(alpha)`. The numbers come from hashes of the ids. numpy's Pareto is the Lomax
    distribution, P(draw > x) = (1 + x)^-alpha."""
    hashes = [xxhash.xxh3_64_intdigest((_KEY + i).encode(), seed) for i in ids.to_pylist()]
    share = (np.array(hashes, np.uint64).astype(np.float64) + 0.5) / 2.0**64
    return np.minimum(share, 1.0) ** (-1.0 / alpha) - 1.0


class Scored(FromFiles, Explains, Kinds):
    """The settings and the model of the step `quality`, for both of its classes: `Quality` and
    `QualityShare`."""

    name: ClassVar[str] = "quality"  # of both classes
    paper: ClassVar[str] = "Brown et al. 2020, appendix A; Li et al. 2024, section 4.4"

    model: str | None = Field(
        None, description=f"Path of a supervised fastText model. Default: the path in {VARIABLE}."
    )
    model_sha256: str | None = None
    """The expected sha256 of the model file. Default: any."""
    score_label: str | None = None
    """The label whose probability is the score. Default: hq, else the other label of a model with
    cc."""
    threshold: float | None = Field(None, ge=0, le=1)
    """Documents with a lower score are dropped. Default: no limit."""
    keep_fraction: float | None = Field(None, gt=0, le=1)
    """Share of documents to keep, those with the highest scores. Default: no limit."""
    pareto: float | None = Field(None, gt=0)
    """GPT-3's draw: a document with score s is kept if a Pareto variable of this shape is above 1 -
    s (Brown et al. 2020, appendix A: 9). Default: no draw."""
    seed: int = Field(0, ge=0, lt=2**64)
    """Seed of the draw."""
    _model: Classifier | None = PrivateAttr(default=None)

    @classmethod
    def fitting(cls, settings: Mapping[str, Any]) -> type[Settings]:
        """Return the class for these settings: QualityShare, which decides on the whole corpus, if
        `keep_fraction` is set, else Quality."""
        return Quality if settings.get("keep_fraction") is None else QualityShare

    @model_validator(mode="after")
    def _one_way(self) -> Scored:
        ways = ("threshold", "keep_fraction", "pareto")
        set_ways = [n for n in ways if getattr(self, n) is not None]
        if len(set_ways) > 1:
            raise ValueError(f"{' and '.join(set_ways)} cannot be combined; give one of them")
        return self

    def identity(self) -> Identity:
        """Return what decides the output. The path of the model (from the setting `model` or an
        environment variable) is included, so that workers use the model of this process."""
        facts = super().identity()
        facts.settings |= {"model": effective(self.model), "model_sha256": None}
        self._check()
        return facts

    def _check(self) -> None:
        path = self._path()
        label = good_label(path, self.score_label)  # raises an error if the file is not a model
        if self.model_sha256 and file_digest(path) != self.model_sha256.lower():
            raise UsageError(
                f"{self.label}: the sha256 of {path} (label {label}) differs from model_sha256"
            )

    def as_found(self) -> dict[str, str]:
        return {"model_sha256": file_digest(self._path())}

    def resources(self) -> list[str]:
        return [self._path()]

    def notes(self) -> list[str]:
        by = "" if self.model else f" (by {VARIABLE})" if os.environ.get(VARIABLE) else ""
        path = self._path()
        return [f"{self.label}: model {path}{by}, label {good_label(path, self.score_label)}"]

    def _path(self) -> str:
        return effective(self.model)

    def open(self) -> None:
        self._model = Classifier(self._path(), self.score_label)

    def explain(self, text: str) -> list[str]:
        """Return lines of text about the words and n-grams that changed the score most."""
        if self._model is None:
            self._check()
            self.open()
        assert self._model is not None
        explanation = self._model.explain(text)
        if not explanation.shares:
            return ["score 0, no word"]
        against = f" against {explanation.against}" if explanation.against else ""
        lines = [
            f"score {explanation.score:.6f}, logit {explanation.logit:+.4f} of"
            f" {self._model.label}{against}"
        ]
        for share in explanation.shares[:EXPLAINED]:
            times = f" ({share.times} times)" if share.times > 1 else ""
            lines.append(f"{share.adds:+.4f} {share.kind} {share.text!r}{times}")
        more = len(explanation.shares) - EXPLAINED
        if more > 0:
            remainder = sum(s.adds for s in explanation.shares[EXPLAINED:])
            lines.append(f"{remainder:+.4f} {more} others together")
        return lines

    def scores(self, docs: Documents) -> np.ndarray:
        if self._model is None:
            self.open()
        assert self._model is not None
        return self._model.scores(*docs.buffers())


@step("quality")
class Quality(Scored, Step):
    """Scores documents and drops those with a score below `threshold`. With `pareto`, documents are
    dropped at random instead, low scores more often, as for GPT-3's training data.

    Columns: `score`, 0 to 1 (0 for a text without words); with `pareto` also `draw`, the random
    number."""

    only_measures: ClassVar[bool] = True

    @property
    def by_id(self) -> bool:
        return self.pareto is not None

    def limits(self) -> list[Limit]:
        return [Limit("low_score", "score", "threshold", self.threshold, above=False)]

    def apply(self, docs: Documents) -> Documents:
        score = self.scores(docs)
        docs = docs.annotate("score", score)
        docs = decide(docs, self.limits())
        if self.pareto is not None:
            draw = pareto_draws(docs.table["id"], self.pareto, self.seed)
            dropped = ~(draw > 1.0 - score)
            docs = docs.annotate("draw", draw)
            reasons = {
                int(r): f"draw {draw[r]:.6g}, needed above {1.0 - score[r]:.6g}"
                for r in np.flatnonzero(dropped)
            }
            detail = [reasons.get(r) for r in range(len(docs))]
            return docs.drop(dropped, "not_drawn", score, detail=detail)
        return docs


class QualityShare(Scored, CorpusStep):
    """Scores documents, and keeps the share `keep_fraction` with the highest scores. The threshold
    is exact: the lowest score of the documents to keep. Documents with an equal score are kept too.
    """

    in_tasks: ClassVar[bool] = True
    after_sketches: ClassVar[frozenset[str]] = frozenset({"keep_fraction"})

    def sketch(self, docs: Documents) -> pa.Table:
        return pa.table({"score": self.scores(docs)})

    def resolve(self, sketches: Sketches) -> Decided:
        return resolve(self, sketches)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        score = np.zeros(len(docs))
        at = np.searchsorted(docs.table[NUMBER].to_numpy(), decisions["n"].to_numpy())
        score[at] = decisions["score"].to_numpy()
        docs = docs.annotate("score", score)
        if not len(decisions):
            return docs
        threshold = decisions["threshold"][0].as_py()
        return docs.drop(score < threshold, "low_score", score, threshold)


# The phases are seen (count scores), threshold, pieces (write decisions). No decision has `drop`
# set or a cluster, so OUT/decisions.parquet lists none: `apply` drops documents by their scores.
SCHEMA = pa.schema([*COLUMNS, ("score", pa.float64()), ("threshold", pa.float64())])
THRESHOLD = "threshold.f64"


def resolve(step: QualityShare, sketches: Sketches) -> Decided:
    file_groups = groups(sketches, sketches.sizes.task_documents)
    run, db = sketches.run, sketches.connection
    share = step.keep_fraction
    assert share is not None

    def seen(folder: Path, done: Done) -> Facts:
        write_counts(run, folder, file_groups, by_lang=False)
        return {}

    def threshold(folder: Path, done: Done) -> Facts:
        counted = done.folder("seen")
        documents = score_totals(db, counted, len(file_groups)).get(ALL, (0,))[0]
        least = 0.0
        if documents:
            rank = documents - kept_count(documents, share)
            wanted = {ALL: [rank]}
            ranked = find_ranks(run, db, folder, file_groups, counted, wanted, by_lang=False)
            least = ranked[ALL][rank]
        np.array([least]).tofile(folder / THRESHOLD)
        return {"documents": documents}

    def pieces(folder: Path, done: Done) -> Facts:
        least = float(np.fromfile(done.file("threshold", THRESHOLD))[0])
        tasks = [PiecesTask(g.part, folder, g, least, step.name) for g in file_groups]
        return {"kept": sum(run_tasks(run, f"{__name__}:write_pieces", tasks, int))}

    phases = [
        Phase("seen", seen),
        Phase("threshold", threshold, frees=("seen",)),
        Phase("pieces", pieces),
    ]
    done = run_phases(sketches.folder, phases)
    join_pieces(
        sketches.decisions, SCHEMA, part_files(done.folder("pieces"), PIECE, len(file_groups))
    )
    least = float(np.fromfile(done.file("threshold", THRESHOLD))[0])
    documents, kept = done.facts["documents"], done.facts["kept"]
    forget(sketches.folder)
    counts = {"documents": documents, "threshold": least, "kept": kept}
    return Decided({**counts, "dropped": documents - kept})


@dataclass(frozen=True)
class PiecesTask(GroupTask):
    """A task to write the score and the threshold of each document, for a group of files of scores
    (sketch files)."""

    threshold: float
    method: str  # name of the step


def write_pieces(task: PiecesTask) -> int:
    """Run a task: write its decisions to a file. Return how many documents reach the threshold."""
    kept: list[int] = []
    write_piece(task.file(PIECE), SCHEMA, _pieces(task, kept))
    return sum(kept)


def _pieces(task: PiecesTask, kept: list[int]) -> Iterator[pa.RecordBatch]:
    for batch in sketch_batches(task.group.files, ["score"], ROWS):
        rows, score = len(batch), batch["score"].cast(pa.float64())
        values = score.to_numpy(zero_copy_only=False)
        kept.append(int(np.count_nonzero(values >= task.threshold)))
        columns = {"part": batch["part"], "n": batch["n"], "id": batch["id"], "score": score}
        columns |= {"drop": pa.repeat(pa.scalar(False), rows)}
        columns |= {"method": pa.repeat(pa.scalar(task.method), rows)}
        columns |= {"threshold": pa.repeat(pa.scalar(task.threshold, pa.float64()), rows)}
        yield completed(SCHEMA, rows, columns)
