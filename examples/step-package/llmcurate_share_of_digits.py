"""The step share_of_digits, which drops documents with too many digits."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow.compute as pc
from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.steps.contracts import Step, step


@step("share_of_digits")
class ShareOfDigitsStep(Step):
    """Drop documents in which too many characters are digits."""

    only_measures: ClassVar[bool] = True  # it does not change texts

    # Fields are settings: in recipes, in Python and on the command line. Each is described by the
    # string below it.
    max_share: float = Field(0.2, ge=0, le=1)
    """Largest share of digits in a kept document."""

    def apply(self, docs: Documents) -> Documents:
        """Measure the documents of a batch, then mark those above the limit."""
        characters = pc.fill_null(pc.utf8_length(docs.text), 0).to_numpy()
        digits = pc.fill_null(pc.count_substring_regex(docs.text, r"\d"), 0).to_numpy()
        docs = docs.annotate("share", digits / np.maximum(characters, 1))
        return decide(docs, self.limits())

    def limits(self) -> list[Limit]:
        """Return the limits, for the report and `llmcurate whatif`."""
        return [Limit("too_high", "share", "max_share", self.max_share, above=True)]
