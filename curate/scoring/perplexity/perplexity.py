"""The step `perplexity`: how expected documents are, and head, middle and tail of a corpus.

Buckets are CCNet's (Wenzek et al. 2020, section 3.4); the cuts are percentiles of the corpus
itself, language by language, unless the models are CCNet's own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr, field_validator, model_validator

from curate.corpus.sketches import Sketches
from curate.documents.documents import NUMBER, Documents
from curate.documents.limits import Limit, decide
from curate.scoring.perplexity.buckets import BUCKETS
from curate.steps.contracts import CorpusStep
from llmcurate.base.errors import UsageError

MARK = "{lang}"  # stands for the language in a model's path
EVERY = "*"  # the key of a model for all languages


def find_models(pattern: str) -> dict[str, Path]:
    """Models by label of language, EVERY for all; files that are there, found by the pattern alone,
    so that no label of a document becomes a path. UsageError where there is none."""
    if MARK not in pattern:
        if not Path(pattern).is_file():
            raise UsageError(f"no model at {pattern}: train one, llmcurate perplexity train")
        return {EVERY: Path(pattern)}
    if pattern.count(MARK) > 1:
        raise UsageError(f"model {pattern}: {MARK} can stand in it once")
    before, after = pattern.split(MARK)
    name_pattern = re.compile(re.escape(before) + r"([A-Za-z0-9_-]+)" + re.escape(after))
    # The folder, or folders, that the label is the name of or stands in.
    head, tail = before.rpartition("/")[0], after.partition("/")
    top = Path(head or ("/" if before.startswith("/") else "."))
    models = {}
    for entry in sorted(top.iterdir()) if top.is_dir() else ():
        path = str(top / entry.name) + tail[1] + tail[2]
        match = name_pattern.fullmatch(
            path if head or before.startswith("/") else path.removeprefix("./")
        )
        if match and Path(path).is_file():
            models[match[1]] = Path(path)
    if not models:
        raise UsageError(f"no model matches {pattern}")
    return models


_NO_LANG = ""


class Perplexity(CorpusStep):
    """Sorts documents into head, middle and tail by perplexity.

    Columns: `score` (perplexity; null without a model or a word), `bucket`, on demand `first`. By
    paragraph: `paragraphs` and `cut` (paragraphs.py).
    """

    name: ClassVar[str] = "perplexity"
    in_tasks: ClassVar[bool] = True
    paper: ClassVar[str] = "Wenzek et al. 2020, section 3.4"

    model: str = Field(
        min_length=1,
        description="The path of the model perplexity.bin; with {lang} in it, of one model a"
        " language.",
    )
    by: Literal["document", "paragraph"] = Field(
        "document",
        description="What is scored and put into buckets: documents, as CCNet's code does, or"
        " paragraphs (lines), as its paper says (Wenzek et al. 2020, section 3.4), of which those"
        " outside the buckets that stay are cut.",
    )
    keep: tuple[str, ...] = Field(
        (),
        description="Buckets that stay: low, head, middle, tail or all (documents without a model"
        " or a word); none: every bucket.",
    )
    low: float = Field(
        0.0,
        ge=0,
        le=100,
        description="The percentile of perplexity under which a document is in low and not in"
        " head: near-copies of what the model was trained on, and text that repeats itself in"
        " few words; 0: none is.",
    )
    head: float = Field(
        30.0,
        ge=0,
        le=100,
        description="The percentile of perplexity under which a document is in head (Wenzek et al."
        " 2020, section 3.4).",
    )
    tail: float = Field(
        60.0,
        ge=0,
        le=100,
        description="The percentile of perplexity from which on a document is in tail (Wenzek et"
        " al. 2020, section 3.4).",
    )
    cutoffs: Literal["own", "ccnet"] = Field(
        "own",
        description="The limits of the buckets: own are percentiles of this corpus, ccnet those"
        " published with CCNet's own models (cc_net/data/cutoff.csv).",
    )
    ccnet_sha256: dict[str, str] = Field(
        {}, description="The sha256 of each of CCNet's models, by language."
    )
    cuts: dict[str, tuple[float, float]] = Field(
        {},
        description="Perplexities where head ends and tail begins, by language, in place of"
        " percentiles.",
    )
    least: float | None = Field(
        None, ge=0, description="Documents of lower perplexity are dropped; none: no limit."
    )
    most: float | None = Field(
        None, ge=0, description="Documents of higher perplexity are dropped; none: no limit."
    )
    first: bool = Field(
        False,
        description="The column first is added: the perplexity where a line that the document had"
        " before is taken as certain.",
    )
    least_first: float | None = Field(
        None,
        ge=0,
        description="Documents whose value of first is lower are dropped, since they repeat"
        " themselves; none: no limit.",
    )
    _models: dict[str, Any] = PrivateAttr(default_factory=dict)

    @field_validator("keep", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """`head,middle` as a list of known buckets."""
        if isinstance(value, str):
            value = [name.strip() for name in value.split(",") if name.strip()]
        if not isinstance(value, (list, tuple)):
            return value
        unknown = [str(v) for v in value if v not in BUCKETS]
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: buckets are {', '.join(BUCKETS)}")
        return tuple(value)

    @model_validator(mode="after")
    def _ordered(self) -> Perplexity:
        """Head ends before tail begins."""
        if self.head > self.tail or any(a > b for a, b in self.cuts.values()):
            raise ValueError("head must not end behind the beginning of tail")
        if self.cuts and self.cutoffs == "ccnet":
            raise ValueError("cuts are your own: they go with cutoffs own")
        if self.low and self.cutoffs == "ccnet":
            raise ValueError("low is a percentile of this corpus: it goes with cutoffs own")
        if self.low > self.head:
            raise ValueError("low must not end behind the end of head")
        of_documents = ("least", "most", "least_first")
        if self.by == "paragraph" and (
            self.first or any(getattr(self, name) is not None for name in of_documents)
        ):
            raise ValueError(
                "least, most, first and least_first are of whole documents: leave them out with by:"
                " paragraph, or put a second step perplexity behind this one"
            )
        return self

    def identity(self) -> dict[str, Any]:
        """With the models found here and now; a damaged one is refused before the run."""
        from curate.scoring.perplexity import ccnet
        from curate.scoring.perplexity.model_file import is_kenlm, read_model

        models = find_models(self.model)
        if self.cutoffs == "ccnet":
            ccnet.check_own(self.label, models, self.ccnet_sha256)
        for path in models.values():
            whole = is_kenlm(path) or read_model(path, whole=True).variant == "ccnet"
            if whole and self.repeats:
                raise UsageError(
                    f"{self.label}: {path} takes a document for one sentence, so no line of it can"
                    " be a repeated one; first and least_first need a model of variant plain"
                )
        return super().identity() | {"languages": sorted(models)}

    def sketch_identity(self) -> dict[str, Any]:
        """The models alone: other buckets do not score again."""
        facts = self.identity()
        settings: dict[str, Any] = {"model": self.model}
        settings |= {"first": True} if self.repeats else {}
        settings |= {"by": self.by} if self.by == "paragraph" else {}
        return facts | {"settings": settings}

    @property
    def repeats(self) -> bool:
        """Whether perplexities with repeated lines as certain are measured too."""
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
        """Loads the models: those of llmcurate are memory-mapped."""
        from curate.scoring.perplexity.ccnet import kenlm_beside
        from curate.scoring.perplexity.model import NgramModel
        from curate.scoring.perplexity.model_file import is_kenlm

        self._models = {
            lang: kenlm_beside(path) if is_kenlm(path) else NgramModel.open(path)
            for lang, path in find_models(self.model).items()
        }

    def sketch(self, docs: Documents) -> pa.Table:
        if not self._models:
            self.open()
        langs = [lang or _NO_LANG for lang in docs.table["lang"].to_pylist()]
        columns = {"lang": pa.array(langs, pa.string())}
        if self.by == "paragraph":
            from curate.scoring.perplexity.paragraphs import paragraph_texts, score_lists

            rows, texts = paragraph_texts(docs)
            each = np.repeat(np.array(langs, object), np.diff(rows)).tolist()
            columns["score"] = score_lists(rows, self._by_language(texts, each, "perplexity"))
            return pa.table(columns)
        for name, of in (("score", "perplexity"), ("first", "first_occurrences")):
            if name == "score" or self.repeats:
                values = self._by_language(docs.text, langs, of)
                columns[name] = pa.array(values, pa.float64(), mask=np.isnan(values))
        return pa.table(columns)

    def _by_language(self, texts: pa.LargeStringArray, langs: list[str], of: str) -> np.ndarray:
        """float64[rows]: what the method `of` of each language's model gives; NaN without one."""
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
    def reach(self) -> Literal["own", "any"]:
        """Buckets by percentiles of the corpus decide where only some of them are kept."""
        return "any" if self.keep and self.cutoffs == "own" else "own"

    def limits(self) -> list[Limit]:
        if self.by == "paragraph":
            return []
        return [
            Limit("perplexity_low", "score", "least", self.least, above=False),
            Limit("perplexity_high", "score", "most", self.most, above=True),
            Limit("repeated", "first", "least_first", self.least_first, above=False),
        ]

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        from curate.scoring.perplexity.buckets import resolve

        return resolve(self, sketches)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        at = np.searchsorted(decisions["n"].to_numpy(), docs.table[NUMBER].to_numpy())
        rows = decisions.take(pa.array(at))
        if self.by == "paragraph":
            from curate.scoring.perplexity.paragraphs import cut_paragraphs

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
            gone = np.array([b not in self.keep for b in bucket], np.bool_)
            docs = docs.drop(gone, "bucket", values, detail=bucket)
        return docs
