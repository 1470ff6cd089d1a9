"""Filter documents by length in words, characters or bytes. Published limits: Gopher 50 to 100,000
words (Rae et al. 2021), C4 up to 190,000 characters (tensorflow_datasets/text/c4_utils.py), CCNet
from 300 characters (Wenzek et al. 2020)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.steps.contracts import Step, step
from curate.steps.profiled import CountsWords


@step("document_length")
class DocumentLength(CountsWords, Step):
    """Drops documents shorter than `min` or longer than `max`. Both limits are inclusive."""

    only_measures: ClassVar[bool] = True
    other_words: ClassVar[tuple[str, ...]] = ("split", "unicode")

    unit: Literal["words", "chars", "bytes"] = "words"
    """The unit of the limits: words, chars (code points), or bytes of UTF-8."""
    words: str = "auto"
    """How words are counted. split counts as Python's str.split() does. auto does the same, except
    in languages written without spaces, whose words are estimated or cut by a dictionary as in the
    step gopher_quality. unicode counts runs of letters, digits, underscores and marks, and grapheme
    clusters in scripts without spaces."""
    min: int | None = Field(None, ge=0)
    """Documents with fewer units are dropped. Without a value there is no lower limit."""
    max: int | None = Field(None, ge=0)
    """Documents with more units are dropped. Without a value there is no upper limit."""

    @model_validator(mode="after")
    def _ordered(self) -> DocumentLength:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}: nothing would be kept")
        return self

    def notes(self) -> list[str]:
        unlimited = self.min is None and self.max is None
        return [f"{self.label}: no limit was given, so nothing is dropped"] if unlimited else []

    def apply(self, docs: Documents) -> Documents:
        from curate.text.tables import segments
        from curate.text.unicode import row_chars
        from curate.text.unspaced import words_within
        from curate.text.words import words

        data, offsets = docs.buffers()
        if self.words == "unicode":
            counted = np.diff(words(docs).rows)
        else:
            table = segments(docs)
            counted = np.diff(table.words.lines[table.lines.rows])
        for profile, rows in [] if self.words in self.other_words else self.unspaced(docs):
            exact = words_within(docs, profile, offsets[rows], offsets[rows + 1])
            counted[rows] = np.rint(exact).astype(counted.dtype)
        lengths = {"words": counted, "chars": row_chars(data, offsets), "bytes": np.diff(offsets)}
        for name, values in lengths.items():
            docs = docs.annotate(name, values.astype(np.int64))
        return decide(docs, self.limits())

    def own_limits(self) -> list[Limit]:
        unit = self.unit
        return [
            Limit("too_short", unit, "min", self.min, above=False, detail=unit),
            Limit("too_long", unit, "max", self.max, above=True, detail=unit),
        ]
