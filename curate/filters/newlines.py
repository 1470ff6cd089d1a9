"""Runs of newlines cut to a length, as DCLM does before it judges a page.

Source: DCLM, baselines/mappers/modifiers.py, newline_removal_modifier.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from curate.documents.cutting import cut_marked
from curate.documents.documents import Documents
from curate.steps.contracts import Step
from kernel_cache import njit

RULES = ("newline_run",)


@njit(cache=True, nogil=True)
def long_runs(data: np.ndarray, offsets: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(mark: uint8[bytes], 1 for a newline with `most` others right before it; rows: bool[rows],
    those with any)."""
    mark = np.zeros(offsets[-1] - offsets[0], np.uint8)
    rows = np.zeros(len(offsets) - 1, np.bool_)
    for row in range(len(rows)):
        run = 0
        for at in range(offsets[row], offsets[row + 1]):
            run = run + 1 if data[at] == 10 else 0
            if run > most:
                mark[at - offsets[0]] = 1
                rows[row] = True
    return mark, rows


class NewlineRuns(Step):
    """Leaves at most so many newlines in a row; every cut is on record."""

    name: ClassVar[str] = "newline_runs"

    most: int = Field(2, ge=1, description="newlines in a row that stay")

    def apply(self, docs: Documents) -> Documents:
        mark, rows = long_runs(*docs.buffers(), self.most)
        return cut_marked(docs, mark, rows & ~docs.marked(), RULES)
