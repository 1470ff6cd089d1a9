"""The step share_of_digits of llmcurate."""

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
    """Drops documents in which too many characters are digits."""

    only_measures: ClassVar[bool] = True  # it drops whole documents and changes no text

    # Fields are settings: in recipes, in Python and on the command line.
    max_share: float = Field(
        0.2, ge=0, le=1, description="Largest share of digits in a document that stays."
    )

    def apply(self, docs: Documents) -> Documents:
        """Measures all documents of a batch at once, then marks those beyond a limit."""
        characters = pc.fill_null(pc.utf8_length(docs.text), 0).to_numpy()
        digits = pc.fill_null(pc.count_substring_regex(docs.text, r"\d"), 0).to_numpy()
        docs = docs.annotate("share", digits / np.maximum(characters, 1))
        return decide(docs, self.limits())

    def limits(self) -> list[Limit]:
        """By these the report shows values beside limits, and `llmcurate whatif` tries others."""
        return [Limit("too_high", "share", "max_share", self.max_share, above=True)]
