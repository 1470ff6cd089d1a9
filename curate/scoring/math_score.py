"""OpenWebMath's MathScore: a fastText model's score of a text without its formulas.

Source: Paster et al. 2023, section 3.3, and their code. The model predicts if a page contains
common LaTeX commands. It reads texts in CCNet's normal form, with `[CODE]` in place of code and
without formulas, as in their text_normalizer.py. The thresholds are 0.17 for texts with formulas
and 0.8 for others. Train another model with `llmcurate quality train --preset openwebmath`."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.scoring.fasttext.supervised import FastTextStep
from curate.steps.contracts import Identity, step
from curate.text.buffers import text_buffers

if TYPE_CHECKING:
    from curate.scoring.quality.model import Classifier

# From text_normalizer.py: CCNet's table, with two more patterns. CCNet maps the wide 1 to a quote.
_PUNCTUATION = {
    **dict.fromkeys("，、", ","), "。": ".", **dict.fromkeys("„”“«»１」「《》", '"'),
    **dict.fromkeys("´’", "'"), **dict.fromkeys("∶：", ":"), "？": "?", "！": "!", "（": "(",
    "）": ")", "；": ";", **dict.fromkeys("–━►", "-"), "—": " - ", "．": ". ", "～": "~",
    "…": "...", "〈": "<", "〉": ">", "【": "[", "】": "]", "％": "%",
}  # fmt: skip
_TABLE = str.maketrans(_PUNCTUATION)
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)))
_DIGIT = re.compile(r"\d")
_FORMULA = re.compile(r"(?<!\\)(?:\$\$?.+?\$\$?)", re.DOTALL)
_CODE = re.compile(r"`{1,3}.*?`{1,3}", re.DOTALL)


def has_formula(text: str) -> bool:
    """Return True if a text has a formula between dollar signs, as `extract` writes formulas.
    Prices do not count: a formula contains a command, a power, an index or an equation."""
    return any(re.search(r"[\\^_=]", m.group()) for m in _FORMULA.finditer(text))


def normal(text: str) -> str:
    """Return the text as the model reads it: on one line and without formulas."""
    text = text.strip().lower()
    if not text.isascii():
        apart = unicodedata.normalize("NFD", text)
        text = "".join(c for c in apart if unicodedata.category(c) != "Mn")
    text = _DIGIT.sub("0", text).translate(_TABLE)
    text = _CODE.sub("[CODE]", _FORMULA.sub("", text))
    # Control characters and newlines are removed, as in the texts on which their model was trained.
    return text.replace("<s>", "").replace("</s>", "").translate(_CONTROLS)


@step("math_score")
class MathScore(FastTextStep):
    """Drops documents that are not about mathematics, by a model's score.

    Columns: `score`, 0 to 1; `formula_score`, the score of documents with a formula, else null;
    `plain_score`, the score of documents without a formula, else null."""

    paper: ClassVar[str] = "Paster et al. 2023 (OpenWebMath), section 3.3"
    only_measures: ClassVar[bool] = True

    where_from: ClassVar[str] = (
        "; train one with `llmcurate quality train --preset openwebmath`, or fetch OpenWebMath's"
        " (open-web-math/filtering-models)"
    )

    score_label: str | None = None
    """The label whose probability is the score. Default: positive, else hq, else the other label of
    a model with cc."""
    threshold: float = Field(0.17, ge=0, le=1)
    """Documents with formulas are dropped if their score is at most this (OpenWebMath's code:
    0.17)."""
    plain_threshold: float = Field(0.8, ge=0, le=1)
    """Documents without formulas are dropped if their score is at most this (OpenWebMath's code:
    0.8)."""
    _model: Classifier | None = PrivateAttr(default=None)

    def _chosen(self) -> str:
        from curate.scoring.quality.model import good_label

        positive = "positive" in self.labels()
        return good_label(self.path(), self.score_label or ("positive" if positive else None))

    def identity(self) -> Identity:
        self._chosen()  # raises an error if the label is wrong
        return super().identity()

    def notes(self) -> list[str]:
        return [f"{self.label}: model {self.model}, label {self._chosen()}"]

    def open(self) -> None:
        from curate.scoring.quality.model import Classifier

        self._model = Classifier(self.path(), self._chosen())

    def apply(self, docs: Documents) -> Documents:
        if self._model is None:
            self.open()
        assert self._model is not None
        texts = [text or "" for text in docs.text.to_pylist()]
        none = np.array([not has_formula(text) for text in texts], np.bool_)
        lines = pa.array([normal(text) for text in texts], pa.large_string())
        score = self._model.scores(*text_buffers(lines))
        docs = docs.annotate("score", score)
        docs = docs.annotate("formula_score", pa.array(score, mask=none))
        docs = docs.annotate("plain_score", pa.array(score, mask=~none))
        return decide(docs, self.limits())

    def limits(self) -> list[Limit]:
        least, plain = self.threshold, self.plain_threshold
        return [
            Limit("low_score", "formula_score", "threshold", least, above=False, closed=True),
            Limit("low_plain", "plain_score", "plain_threshold", plain, above=False, closed=True),
        ]
