"""Cut units (sentences, paragraphs or documents) to which a fastText model gives a label, or drop
the documents that have such units.

This follows Dolma's taggers and mixer (Soldaini et al. 2024, section 3.1.3; allenai/dolma,
python/dolma/taggers/jigsaw.py and configs/dolma-v1_6/mixing/cc-head.yaml). Dolma cuts sentences
that models trained on Jigsaw's comments score 0.4 or more as hateful or as not safe for work.
Sentences are those of text/sentences.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.documents.limits import Limit, decide
from curate.scoring.fasttext.supervised import FastTextStep
from curate.steps.contracts import Identity, step
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from curate.scoring.fasttext.classifier import Classifier
    from curate.text.lines import Extents

RULES = ("tagged",)


def pieces(data: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join the passages data[start:end]. Return (bytes: uint8[], offsets: int64[pieces + 1])."""
    sizes = end - start
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    at = np.arange(offsets[-1]) + np.repeat(start - offsets[:-1], sizes)
    return data[at], offsets


@step("tagger")
class Tagger(FastTextStep):
    """Cuts text that gets a label from a fastText model, or drops documents with such text.

    Columns: `units`, the number of sentences, paragraphs or documents (setting `unit`) scored;
    `tagged`, the number of these with the label; `max_score`, the highest score in the document.
    """

    paper: ClassVar[str] = "Soldaini et al. 2024 (Dolma), section 3.1.3"

    where_from: ClassVar[str] = (
        "; train one with `llmcurate quality train`, or take Dolma's (allenai/dolma,"
        " taggers/jigsaw.py)"
    )

    tag: str | None = None
    """The label whose probability is the score. None: of two labels, the one that does not begin
    with non, not or cc."""
    unit: Literal["sentence", "paragraph", "document"] = "sentence"
    """The unit to score: sentences, paragraphs (lines, as in Dolma) or documents."""
    threshold: float = Field(0.4, ge=0, le=1)
    """Units with this score or more have the label (configs/dolma-v1_6: 0.4)."""
    action: Literal["cut", "drop"] = "cut"
    """The action on a unit with the label: cut removes it from the text, drop drops its
    document."""
    _model: Classifier | None = PrivateAttr(default=None)
    _code: int = PrivateAttr(default=0)

    def identity(self) -> Identity:
        self._chosen()  # raises for a wrong label
        return super().identity()

    def notes(self) -> list[str]:
        return [f"{self.label}: model {self.model}, label {self._chosen()}"]

    def _chosen(self) -> str:
        labels = self.labels()
        if self.tag is not None:
            tag = self.tag.removeprefix("__label__")
            if tag not in labels:
                raise UsageError(
                    f"{self.label}: {self.model} has no label {tag!r}; it has"
                    f" {', '.join(labels[:8])}"
                )
            return tag
        negative = ("non", "not", "cc")  # `llmcurate quality train` names its negatives `cc`
        positive = [name for name in labels if not name.lower().startswith(negative)]
        if len(labels) != 2 or len(positive) != 1:
            raise UsageError(
                f"{self.label}: {self.model} has the labels {', '.join(labels[:8])}: choose one"
                f" with --set {self.label}.tag=LABEL"
            )
        return positive[0]

    def open(self) -> None:
        from curate.scoring.fasttext.classifier import Classifier

        self._model = Classifier(self.path())
        self._code = self._model.labels.index(self._chosen())

    def _units(self, docs: Documents) -> Extents:
        from curate.text.lines import Extents, newline_lines
        from curate.text.sentences import sentences

        if self.unit == "sentence":
            return sentences(docs)
        if self.unit == "paragraph":
            return newline_lines(docs)
        _, offsets = docs.buffers()
        return Extents(np.arange(len(offsets)), offsets[:-1], offsets[1:])

    def apply(self, docs: Documents) -> Documents:
        from curate.documents.cutting import cut
        from curate.scoring.quality.model import quality_lines

        if self._model is None:
            self.open()
        assert self._model is not None
        data, offsets = docs.buffers()
        units = self._units(docs)
        lines, ends, filled = quality_lines(*pieces(data, units.start, units.end))
        scores = self._model.probabilities(lines, ends, [self._code])[:, 0].astype(np.float64)
        scores = np.minimum(scores, 1.0) * filled
        rows = np.repeat(np.arange(len(docs)), np.diff(units.rows))
        tagged = scores >= self.threshold
        highest = np.zeros(len(docs))
        np.maximum.at(highest, rows, scores)
        docs = docs.annotate("units", np.bincount(rows[filled], minlength=len(docs)))
        docs = docs.annotate("tagged", np.bincount(rows[tagged], minlength=len(docs)))
        docs = docs.annotate("max_score", highest)
        docs = decide(docs, self.limits())
        if self.action == "drop":
            return docs
        chosen = tagged & ~docs.marked()[rows]
        at = rows[chosen]
        zeros = np.zeros(len(at), np.int64)
        start, end = units.start[chosen] - offsets[at], units.end[chosen] - offsets[at]
        docs = cut(docs, Spans(at, start, end, zeros, RULES, zeros))
        empty = np.array([not (t or "").strip() for t in docs.text.to_pylist()], np.bool_)
        any_tagged = np.bincount(rows[tagged], minlength=len(docs)) > 0
        return docs.drop(empty & any_tagged, "nothing_left")

    def limits(self) -> list[Limit]:
        if self.action == "cut":
            return []
        return [Limit("tagged", "max_score", "threshold", self.threshold, above=True, closed=True)]
