"""FineWeb's quality rules (Penedo et al. 2024, section 3.6): pages of lists, menus and copies.

Two readings: "datatrove" is DataTrove 0.10's `fineweb_quality_filter.py`; "paper" has the paper's
limits and comparisons, and no rule on newlines.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.steps.contracts import Step

# DataTrove's default is a tenth of the paper's limit.
MAX_DUPLICATE_CHARS = {"datatrove": 0.01, "paper": 0.1}


class FineWebQuality(Step):
    """Drops documents whose lines lack end marks, are short, are copies, or hold few words."""

    name: ClassVar[str] = "fineweb_quality"
    only_measures: ClassVar[bool] = True

    variant: Literal["datatrove", "paper"] = Field("datatrove", description="whose reading")
    # Penedo et al. 2024, section 3.6; DataTrove 0.10, fineweb_quality_filter.py.
    min_end_marks: float = Field(0.12, ge=0, description="share of lines that end in a stop mark")
    max_short_lines: float = Field(0.67, ge=0, description="share of lines")
    short_line_chars: int = Field(30, ge=0, description="a line up to here is short; paper: below")
    max_duplicate_chars: float | None = Field(
        None, ge=0, description="share of characters in copies; none: the variant's, 0.01 or 0.1"
    )
    max_newlines: float = Field(0.3, ge=0, description="newlines a word; not in the paper")

    def apply(self, docs: Documents) -> Documents:
        from curate.filters.fineweb_measures import measured

        return decide(measured(docs, self.variant, self.short_line_chars), self.limits())

    def limits(self) -> list[Limit]:
        paper = self.variant == "paper"
        copies = self.max_duplicate_chars
        if copies is None:
            copies = MAX_DUPLICATE_CHARS[self.variant]

        def limit(column: str, setting: str, threshold: float, above: bool) -> Limit:
            return Limit(column, column, setting, threshold, above, closed=paper, only="lines")

        found = [
            Limit("empty", "lines", "", 1, above=False),
            limit("end_marks", "min_end_marks", self.min_end_marks, False),
            limit("short_lines", "max_short_lines", self.max_short_lines, True),
            limit("duplicate_line_chars", "max_duplicate_chars", copies, True),
        ]
        if not paper:
            found.append(limit("newlines", "max_newlines", self.max_newlines, True))
        return found
