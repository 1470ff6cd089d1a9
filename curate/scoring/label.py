"""The step `label`: the best label of any supervised fastText model, such as a topic or a format.

What the label means is the model's: WebOrganizer's topics and formats (Wettig et al. 2025), once
distilled to fastText, as well as one trained by `fasttext supervised`. `mix --by label.label` mixes
by it, and `quality_buckets` ranks within it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.scoring.fasttext.supervised import FastTextStep


class Label(FastTextStep):
    """Labels every document with a fastText model of one's own; drops none.

    Columns: `label`, without `__label__`, and `score`, its probability; both null for a text
    without any word, and where the probability is below `threshold`.
    """

    name: ClassVar[str] = "label"
    paper: ClassVar[str] = "Joulin et al. 2017 (fastText); Wettig et al. 2025 (WebOrganizer)"
    only_measures: ClassVar[bool] = True

    threshold: float = Field(
        0.0, ge=0, le=1, description="Least probability of a label; below it there is none."
    )
    _model: Any = PrivateAttr(default=None)

    def open(self) -> None:
        from curate.scoring.language.model import Model

        self._model = Model(self.path())

    def apply(self, docs: Documents) -> Documents:
        from curate.scoring.quality.model import quality_lines

        if self._model is None:
            self.open()
        codes, scores = self._model.best(*quality_lines(*docs.buffers()))
        none = (codes < 0) | (scores < self.threshold)
        names = pa.array(self._model.labels, pa.string())
        label = names.take(pa.array(codes, mask=none))
        docs = docs.annotate("label", label)
        return docs.annotate("score", pa.array(scores.astype(np.float64), mask=none))
