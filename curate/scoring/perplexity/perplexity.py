"""The step `perplexity`: score documents with a language model and sort them into buckets.

The buckets head, middle and tail are CCNet's (Wenzek et al. 2020, section 3.4), cut at percentiles
per language; CCNet's models can use CCNet's published cuts. An optional lower percentile separates
the bucket `low` from head. The bucket `all` has documents without words, or without a model for
their language. With `by: paragraph`, a score is the list of the paragraphs' scores."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr, field_validator, model_validator

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
from curate.corpus.ranks import find_ranks, score_totals, write_counts
from curate.corpus.shuffle.tasks import Group, GroupTask, groups, part_files, run_tasks
from curate.corpus.sketches import Sketches, sketch_batches
from curate.documents.documents import NUMBER, Documents
from curate.documents.limits import Limit, decide
from curate.steps.contracts import CorpusStep, FromFiles, Identity, step
from curate.text.languages import entry_for
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import OPTIONAL, Message, json_values

if TYPE_CHECKING:
    from curate.scoring.perplexity.model import KenlmModel, NgramModel

MARK = "{lang}"  # placeholder for the language in a model's path
EVERY = "*"  # the key of a model for all languages
BUCKETS = ("head", "middle", "tail", "all", "low")
ALL, LOW = BUCKETS.index("all"), BUCKETS.index("low")


def find_models(pattern: str) -> dict[str, Path]:
    """Return {language: path of its model file}, or {EVERY: path} if one model serves all
    languages. The languages are taken from the existing files that match the pattern, so that a
    document's label never becomes a path. Raises UsageError if no file is found."""
    if MARK not in pattern:
        if not Path(pattern).is_file():
            raise UsageError(f"no model at {pattern}: train one with `llmcurate perplexity train`")
        return {EVERY: Path(pattern)}
    if pattern.count(MARK) > 1:
        raise UsageError(f"model {pattern}: {MARK} may appear only once")
    before, after = pattern.split(MARK)
    paths = sorted(glob(f"{escape(before)}*{escape(after)}"))  # noqa: PTH207 - as written
    named = {path[len(before) : len(path) - len(after)]: Path(path) for path in paths}
    models = {
        lang: path
        for lang, path in named.items()
        if re.fullmatch("[A-Za-z0-9_-]+", lang) and path.is_file()
    }
    if not models:
        raise UsageError(f"no model matches {pattern}")
    return models


_NO_LANG = ""


@step("perplexity")
class Perplexity(CorpusStep, FromFiles):
    """Sorts documents into head, middle and tail by perplexity.

    Columns: `score` (the perplexity; null without a model for the language or without words),
    `bucket`, and `first` (see the settings `first` and `least_first`). With `by: paragraph`:
    `paragraphs`, the number of paragraphs with a score, and `cut`, the number of removed ones."""

    in_tasks: ClassVar[bool] = True
    version: ClassVar[int] = 2  # 2: a model serves all labels of its language
    paper: ClassVar[str] = "Wenzek et al. 2020, section 3.4"

    model: str = Field(min_length=1)
    """Path of the model perplexity.bin; with {lang} in it, one model per language."""
    by: Literal["document", "paragraph"] = "document"
    """Score documents, as CCNet's code does, or paragraphs (lines), as its paper describes (Wenzek
    et al. 2020, section 3.4). Paragraphs outside the kept buckets are cut from the text."""
    keep: tuple[str, ...] = ()
    """Buckets to keep: low, head, middle, tail, all (documents without a model or a word). Default:
    every bucket."""
    low: float = Field(0.0, ge=0, le=100)
    """Documents below this percentile of perplexity are in low instead of head: near-duplicates of
    the model's training text, and repetitive text of few words. 0: no document."""
    head: float = Field(30.0, ge=0, le=100)
    """Documents below this percentile of perplexity are in head (Wenzek et al. 2020, section
    3.4)."""
    tail: float = Field(60.0, ge=0, le=100)
    """Documents at or above this percentile of perplexity are in tail (Wenzek et al. 2020, section
    3.4)."""
    cutoffs: Literal["own", "ccnet"] = "own"
    """Limits of the buckets: own for percentiles of this corpus, ccnet for the limits published
    with CCNet's own models (cc_net/data/cutoff.csv)."""
    ccnet_sha256: dict[str, str] = {}
    """The sha256 of each CCNet model, by language."""
    cuts: dict[str, tuple[float, float]] = {}
    """Perplexities where head ends and tail begins, by language."""
    least: float | None = Field(None, ge=0)
    """Documents of lower perplexity are dropped. Default: no limit."""
    most: float | None = Field(None, ge=0)
    """Documents of higher perplexity are dropped. Default: no limit."""
    first: bool = False
    """Add the column first: the perplexity if repetitions of a line within the document have
    probability 1."""
    least_first: float | None = Field(None, ge=0)
    """Documents with a lower value of first are dropped. Default: no limit."""
    _models: dict[str, NgramModel | KenlmModel] = PrivateAttr(default_factory=dict)

    @field_validator("keep", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [name.strip() for name in value.split(",") if name.strip()]
        if not isinstance(value, (list, tuple)):
            return value
        unknown = [str(v) for v in value if v not in BUCKETS]
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}; buckets are {', '.join(BUCKETS)}")
        return tuple(value)

    @model_validator(mode="after")
    def _ordered(self) -> Perplexity:
        if self.head > self.tail or any(a > b for a, b in self.cuts.values()):
            raise ValueError("head must not end above the beginning of tail")
        if self.cuts and self.cutoffs == "ccnet":
            raise ValueError("cuts need cutoffs: own")
        if self.low and self.cutoffs == "ccnet":
            raise ValueError("low is a percentile of this corpus: it needs cutoffs: own")
        if self.low > self.head:
            raise ValueError("low must not end above the end of head")
        of_documents = ("least", "most", "least_first")
        if self.by == "paragraph" and (
            self.first or any(getattr(self, name) is not None for name in of_documents)
        ):
            raise ValueError(
                "least, most, first and least_first apply to whole documents: leave them out with"
                " by: paragraph, or add a second step perplexity after this one"
            )
        return self

    def identity(self) -> Identity:
        """Return what decides the output; this includes the languages that have models. Raises
        UsageError if a model is damaged."""
        from curate.scoring.perplexity.model import check_own
        from curate.scoring.perplexity.model_file import is_kenlm, read_model

        models = find_models(self.model)
        if self.cutoffs == "ccnet":
            check_own(self.label, models, self.ccnet_sha256)
        for path in models.values():
            whole = is_kenlm(path) or read_model(path, whole=True).variant == "ccnet"
            if whole and self.repeats:
                raise UsageError(
                    f"{self.label}: {path} treats a document as one sentence, so it has no repeated"
                    " lines; first and least_first need a model of variant plain"
                )
        identity = super().identity()
        identity.contents["languages"] = sorted(models)
        return identity

    def sketch_identity(self) -> Identity:
        """Return what decides the scores. Its settings are only `model`, `by` if paragraphs are
        scored, and `first`: True if the column `first` is needed."""
        settings: dict[str, str | bool] = {"model": self.model}
        settings |= {"first": True} if self.repeats else {}
        settings |= {"by": self.by} if self.by == "paragraph" else {}
        return replace(self.identity(), settings=settings)

    @property
    def repeats(self) -> bool:
        """True if the settings need the column `first`: the perplexity of a document in which
        repetitions of a line have probability 1."""
        return self.first or self.least_first is not None

    def resources(self) -> list[str]:
        paths = []
        for path in find_models(self.model).values():
            paths.append(str(path))
            if path.name.endswith(".arpa.bin"):
                paths.append(str(path.with_name(path.name[: -len(".arpa.bin")] + ".sp.model")))
        return paths

    def notes(self) -> list[str]:
        models = find_models(self.model)
        if EVERY in models:
            return [f"{self.label}: one model for all languages, {self.model}"]
        return [f"{self.label}: models for {', '.join(models)}; other languages are `all`"]

    def open(self) -> None:
        from curate.scoring.perplexity.model import NgramModel, kenlm_beside
        from curate.scoring.perplexity.model_file import is_kenlm

        self._models = {
            lang: kenlm_beside(path) if is_kenlm(path) else NgramModel.open(path)
            for lang, path in find_models(self.model).items()
        }

    def sketch(self, docs: Documents) -> pa.Table:
        if not self._models:
            self.open()
        # A language's model and cuts apply to all its labels.
        names = [*self._models, *self.cuts]
        labels = docs.table["lang"].fill_null(_NO_LANG).to_pylist()
        langs = [entry_for(label, names) or label for label in labels]
        columns = {"lang": pa.array(langs, pa.string())}
        if self.by == "paragraph":
            rows, texts = paragraph_texts(docs)
            each = np.repeat(np.array(langs, object), np.diff(rows)).tolist()
            scores = self._by_language(texts, each, "perplexity")
            values = pa.array(scores, pa.float64(), mask=np.isnan(scores))
            columns["score"] = pa.ListArray.from_arrays(pa.array(rows.astype(np.int32)), values)
            return pa.table(columns)
        for name, of in (("score", "perplexity"), ("first", "first_occurrences")):
            if name == "score" or self.repeats:
                values = self._by_language(docs.text, langs, of)
                columns[name] = pa.array(values, pa.float64(), mask=np.isnan(values))
        return pa.table(columns)

    def _by_language(self, texts: pa.LargeStringArray, langs: list[str], of: str) -> np.ndarray:
        if MARK not in self.model:
            scores: np.ndarray = getattr(self._models[EVERY], of)(texts)
            return scores
        values = np.full(len(texts), np.nan)
        model_langs = np.array([lang if lang in self._models else _NO_LANG for lang in langs])
        for lang in sorted({*model_langs.tolist()} - {_NO_LANG}):
            at = np.flatnonzero(model_langs == lang)
            values[at] = getattr(self._models[lang], of)(texts.take(pa.array(at)))
        return values

    @property
    def shared_key_column(self) -> str | None:
        """None if the decision on a document may depend on all other documents, because percentiles
        of the corpus decide which documents are dropped; "" if each document is decided alone."""
        return None if self.keep and self.cutoffs == "own" else ""

    @property
    def obstacle(self) -> str | None:
        if self.cutoffs == "ccnet":
            return None
        without = f" --set {self.label}.low=0" if self.low else ""
        return (
            f"percentiles need the whole corpus; --set {self.label}.cutoffs=ccnet{without}"
            " uses the published limits of CCNet's models"
        )

    def limits(self) -> list[Limit]:
        if self.by == "paragraph":
            return []
        return [
            Limit("perplexity_low", "score", "least", self.least, above=False),
            Limit("perplexity_high", "score", "most", self.most, above=True),
            Limit("repeated", "first", "least_first", self.least_first, above=False),
        ]

    def resolve(self, sketches: Sketches) -> Decided:
        return resolve(self, sketches)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        at = np.searchsorted(decisions["n"].to_numpy(), docs.table[NUMBER].to_numpy())
        rows = decisions.take(pa.array(at))
        if self.by == "paragraph":
            return cut_paragraphs(docs, self.keep, rows)
        score = rows["score"].combine_chunks().cast(pa.float64())
        values = score.to_numpy(zero_copy_only=False).astype(np.float64)
        bucket = rows["bucket"].to_pylist()
        docs = docs.annotate("score", score)
        docs = docs.annotate("bucket", pa.array(bucket, pa.string()))
        if self.repeats:
            docs = docs.annotate("first", rows["first"].combine_chunks().cast(pa.float64()))
        docs = decide(docs, self.limits())
        if self.keep:
            dropped = np.array([b not in self.keep for b in bucket], np.bool_)
            docs = docs.drop(dropped, "bucket", values, detail=bucket)
        return docs


# Tasks on groups of sketch files run in three phases: count scores (seen), find the limits of
# buckets (cuts), write decisions (pieces). The caller joins the pieces into one file.

BINS = 40
MOST = 1e300  # higher and infinite perplexities are counted in the last bin
Cuts = dict[str, tuple[float, float, float]]  # where head ends, tail begins, low ends


def ranks_between(scores: int, percent: float) -> tuple[int, int]:
    """Return the two ranks (from 0) between which the percentile `percent` of sorted scores lies.
    `scores` is the number of scores."""
    place = (scores - 1) * percent / 100
    return math.floor(place), math.ceil(place)


def percentile(scores: int, ranked: dict[int, float], percent: float) -> float:
    """Return the exact percentile of scores, interpolated linearly as in numpy. `scores` is the
    number of scores. `ranked` has the needed scores by rank. Infinite scores rank highest. A
    percentile between two infinite scores is infinite, while in numpy it is NaN."""
    low, high = (ranked[rank] for rank in ranks_between(scores, percent))
    if low == high:
        return low
    place = (scores - 1) * percent / 100
    return low + (high - low) * (place - math.floor(place))


def bucket_of(
    score: np.ndarray, head: np.ndarray, tail: np.ndarray, low: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return int8[rows]: the bucket of each score, as an index into BUCKETS. All arguments are
    float64[rows]: the scores, and the cuts that apply to each score. NaN means no score or no
    cuts."""
    buckets = np.where(score < head, 0, np.where(score < tail, 1, 2))
    buckets = np.where(score < low, LOW, buckets)
    return np.where(np.isnan(score) | np.isnan(head), ALL, buckets).astype(np.int8)


# "We [...] compute the perplexity of each paragraph" (Wenzek et al. 2020, section 3.4); their code
# scores pages. A paragraph is a line, as in CCNet's dedup. A paragraph without words has no score
# and is kept; percentiles are over all paragraphs of a language.
def paragraph_texts(docs: Documents) -> tuple[np.ndarray, pa.LargeStringArray]:
    """Return (firsts, lines): int64[rows + 1], the number of each row's first line; and the lines
    of all texts, with newlines."""
    from curate.text.buffers import text_array
    from curate.text.lines import newline_lines

    data, offsets = docs.buffers()
    lines = newline_lines(docs)
    tiles = np.append(lines.start, offsets[-1])
    return lines.rows, text_array(data, tiles)


def cut_paragraphs(docs: Documents, keep: tuple[str, ...], decisions: pa.Table) -> Documents:
    """Remove paragraphs (lines) whose bucket is not in `keep` (empty: remove none). `decisions` has
    one row per document: its paragraphs' scores, and the scores that separate its language's
    buckets.

    Adds the columns `paragraphs`, the number of paragraphs with a score, and `cut`, the number of
    removed paragraphs. A document without scored paragraphs is in the bucket named `all`, and is
    dropped by the rule `bucket` if `keep` lacks this name. A document that loses all scored
    paragraphs is dropped by the rule `nothing_left`."""
    from curate.documents.cutting import cut_marked
    from curate.text.lines import newline_lines

    _, offsets = docs.buffers()
    lines = newline_lines(docs)
    lists = decisions["score"].combine_chunks()
    score = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    row = np.repeat(np.arange(len(docs)), np.diff(lines.rows))
    cuts = [
        decisions[name].combine_chunks().cast(pa.float64()).to_numpy(zero_copy_only=False)[row]
        for name in ("head", "tail", "low")
    ]
    bucket = bucket_of(score, *cuts)
    kept_codes = [code for code, name in enumerate(BUCKETS) if name in keep or not keep]
    scored = ~np.isnan(score)
    removed = scored & ~np.isin(bucket, kept_codes)
    paragraphs = np.bincount(row[scored], minlength=len(docs))
    cut = np.bincount(row[removed], minlength=len(docs))
    docs = docs.annotate("paragraphs", paragraphs.astype(np.int32))
    docs = docs.annotate("cut", cut.astype(np.int32))
    if keep and "all" not in keep:
        docs = docs.drop(paragraphs == 0, "bucket", detail=["all"] * len(docs))
    docs = docs.drop((cut > 0) & (cut == paragraphs), "nothing_left", paragraphs - cut, 1)
    edited = (cut > 0) & ~docs.marked()
    if not edited.any():
        return docs
    marks = np.where(removed, bucket + 1, 0).astype(np.uint8)
    mark = np.repeat(marks, np.diff(np.append(lines.start, offsets[-1])))
    # If the last paragraphs are cut, the line end of the last one kept is cut too.
    kept = np.flatnonzero(scored & ~removed)
    for r in np.flatnonzero(edited):
        last = kept[np.searchsorted(row[kept], r, "right") - 1]
        after = marks[last + 1 : lines.rows[r + 1]]
        if after.any():
            end = lines.end[last] - offsets[0]
            mark[end : offsets[r + 1] - offsets[0]] = after[after > 0][-1]
    return cut_marked(docs, mark, edited, BUCKETS)


def bins_of(low: float, high: float) -> tuple[float, float]:
    """Return (start, width) of bins of equal width in log10(1 + score), from `low` to `high`."""
    least, most = math.log10(1 + min(low, MOST)), math.log10(1 + min(high, MOST))
    return least, max((most - least) / BINS, 1e-6)


def bin_counts(score: np.ndarray, least: float, width: float) -> np.ndarray:
    place = np.floor((np.log10(1 + np.minimum(score, MOST)) - least) / width)
    return np.bincount(np.clip(place, 0, BINS - 1).astype(np.int64), minlength=BINS)


@dataclass(frozen=True)
class Histogram:
    """A histogram with the fields that a report's histograms have (inspect/report/store.py)."""

    scale: str
    edges: list[float]
    counts: list[int]


def histogram(counts: np.ndarray, least: float, width: float) -> Histogram:
    edges = 10 ** (least + width * np.arange(BINS + 1)) - 1
    return Histogram("log", [round(e, 6) for e in edges.tolist()], counts.tolist())


MOST_LANGS = 50  # in the report
CUTS = ("head", "tail", "low")  # `low` is needed only for paragraphs


def _schema(first: bool, paragraphs: bool) -> pa.Schema:
    number = pa.float64()
    columns = [("score", pa.list_(number) if paragraphs else number), ("bucket", pa.string())]
    cuts = CUTS if paragraphs else CUTS[:2]
    columns += [(name, number) for name in (*cuts, *(["first"] if first else []))]
    return pa.schema([*COLUMNS, *columns])


def _cuts(
    step: Perplexity, sketches: Sketches, folder: Path, file_groups: list[Group], counted: Path
) -> Cuts:
    if step.cutoffs == "ccnet":
        from curate.scoring.perplexity.model import CUTOFFS

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


def resolve(step: Perplexity, sketches: Sketches) -> Decided:
    file_groups = groups(sketches, sketches.sizes.task_documents)
    first, paragraphs = step.repeats, step.by == "paragraph"

    def seen(folder: Path, done: Done) -> Facts:
        write_counts(sketches.run, folder, file_groups, by_lang=True)
        return {}

    def cuts(folder: Path, done: Done) -> Facts:
        counted = done.folder("seen")
        by_lang = score_totals(sketches.connection, counted, len(file_groups))
        shown = sorted(by_lang, key=lambda lang: (-by_lang[lang][0], lang))[:MOST_LANGS]
        bins = {g: bins_of(*by_lang[g][2:]) for g in shown if by_lang[g][1]}
        found = Languages(_cuts(step, sketches, folder, file_groups, counted), shown, bins)
        (folder / LANGUAGES).write_bytes(found.to_json())
        return {}

    def pieces(folder: Path, done: Done) -> Facts:
        file = done.file("cuts", LANGUAGES)
        tasks = [PiecesTask(g.part, folder, g, file, first, paragraphs) for g in file_groups]
        answers = run_tasks(sketches.run, f"{__name__}:write_pieces", tasks, BucketCounts)
        total = BucketCounts({lang: {} for lang in _languages(file).shown}, {})
        for answer in answers:
            total.add(answer)
        (folder / SEEN).write_bytes(total.to_json())
        return {}

    phases = [
        Phase("seen", seen),
        Phase("cuts", cuts, frees=("seen",)),
        Phase("pieces", pieces),
    ]
    done = run_phases(sketches.folder, phases)
    piece_files = part_files(done.folder("pieces"), PIECE, len(file_groups))
    join_pieces(sketches.decisions, _schema(first, paragraphs), piece_files)
    languages = _languages(done.file("cuts", LANGUAGES))
    total = BucketCounts.from_json(done.file("pieces", SEEN).read_bytes())
    forget(sketches.folder)
    figures = {lang or "(none)": _figures(languages, total, lang, step) for lang in languages.shown}
    return Decided({}, tables={"perplexity": json_values(figures)})


LANGUAGES, SEEN = "languages.json", "seen.json"


@dataclass(frozen=True)
class Languages(Message):
    """The scores that separate the buckets (`cuts`), and the histogram bins, of each language."""

    cuts: Cuts  # language -> scores where head ends, tail begins, low ends
    shown: list[str]  # languages in the report
    bins: dict[str, tuple[float, float]]  # language -> (start, width) of its bins


def _languages(file: Path) -> Languages:
    return Languages.from_json(file.read_bytes())


@dataclass(frozen=True)
class BucketCounts(Message):
    """The numbers of documents (or paragraphs) per bucket, and of scores per histogram bin."""

    buckets: dict[str, dict[str, int]]  # language -> {bucket: number}
    bins: dict[str, list[int]]  # language -> numbers

    def add(self, other: BucketCounts) -> None:
        for lang, counts in other.buckets.items():
            own = self.buckets.setdefault(lang, {})
            for name, count in counts.items():
                own[name] = own.get(name, 0) + count
        for lang, of_bins in other.bins.items():
            before = self.bins.get(lang, [0] * len(of_bins))
            self.bins[lang] = [a + b for a, b in zip(before, of_bins, strict=True)]


@dataclass(frozen=True)
class Figures:
    """Figures of one language for the report."""

    by: str  # document or paragraph
    buckets: dict[str, int]  # documents (or paragraphs) per bucket
    cuts: list[float]  # scores where head ends and tail begins
    low: float | None = field(default=None, metadata=OPTIONAL)  # score where low ends
    histogram: Histogram | None = field(default=None, metadata=OPTIONAL)


def _figures(languages: Languages, seen: BucketCounts, lang: str, step: Perplexity) -> Figures:
    *cuts, low = languages.cuts.get(lang, (0.0,))
    bins = languages.bins.get(lang)
    return Figures(
        step.by,
        dict(sorted(seen.buckets[lang].items())),
        cuts,
        low or None,
        histogram(np.array(seen.bins[lang]), *bins) if bins else None,
    )


@dataclass(frozen=True)
class PiecesTask(GroupTask):
    """A task to write the score of each document and its language's cuts (scores that separate the
    buckets). It reads a group of sketch files (files of scores)."""

    languages: Path  # file with the cuts of each language
    first: bool  # True if the files have the column `first`
    paragraphs: bool  # True if scores are per paragraph


def write_pieces(task: PiecesTask) -> BucketCounts:
    """Run a task: write a file with the score of each document and its language's cuts (scores that
    separate the buckets). The caller joins the files of all tasks. Return counts by language."""
    seen = BucketCounts({}, {})
    schema = _schema(task.first, task.paragraphs)
    write_piece(task.file(PIECE), schema, _pieces(task, schema, seen))
    return seen


def _pieces(task: PiecesTask, schema: pa.Schema, seen: BucketCounts) -> Iterator[pa.RecordBatch]:
    columns = ["lang", "score", *(["first"] if task.first else [])]
    languages = _languages(task.languages)
    names = pa.array(BUCKETS, pa.string())
    for batch in sketch_batches(task.group.files, columns, ROWS):
        coded = batch["lang"].dictionary_encode()
        langs, code = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        cuts = np.array([languages.cuts.get(g) or (np.nan,) * 3 for g in langs]).reshape(-1, 3)
        score = batch["score"]
        each = np.arange(len(batch))  # the document of each score
        if task.paragraphs:
            each, score = score.value_parent_indices().to_numpy(), score.flatten()
        values = score.cast(pa.float64()).to_numpy(zero_copy_only=False)
        bucket = bucket_of(values, *cuts[code[each]].T)
        for number, lang in enumerate(langs):
            if lang not in languages.shown:
                continue
            of_lang = code[each] == number
            counts = np.bincount(bucket[of_lang], minlength=len(BUCKETS)).tolist()
            by_bucket = {name: n for name, n in zip(BUCKETS, counts, strict=True) if n}
            of_bins = {}
            if lang in languages.bins:
                some = values[of_lang]
                counted = bin_counts(some[~np.isnan(some)], *languages.bins[lang])
                of_bins[lang] = counted.tolist()
            seen.add(BucketCounts({lang: by_bucket}, of_bins))
        rows = len(batch)
        out = {name: batch[name] for name in ("part", "n", "id", "score")}
        out |= {"drop": pa.repeat(pa.scalar(False), rows)}
        out |= {"method": pa.repeat(pa.scalar("perplexity"), rows)}
        if not task.paragraphs:
            out |= {"bucket": names.take(pa.array(bucket))}
        for name, of_name in zip(CUTS, cuts[code].T, strict=True):
            out[name] = pa.array(of_name, mask=np.isnan(of_name))
        if task.first:
            out["first"] = batch["first"]
        yield completed(schema, rows, out)
