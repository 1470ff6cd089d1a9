"""Replace the matches of a regular expression, or single characters."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from pydantic import Field, PrivateAttr, model_validator

from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.steps.contracts import Step, step


@step("replace")
class Replace(Step):
    """Replaces the matches of a regular expression, or single characters."""

    pattern: str | None = None
    """A regular expression, as Python's `re` reads it ((?s), (?i) and so on)."""
    replacement: str = Field(
        "", description="The text in place of each match of `pattern`; \\1 is its first group."
    )
    characters: dict[str, str] = {}
    """Characters, each with the text in its place. Given without `pattern`."""
    _regex: re.Pattern[str] = PrivateAttr()

    @model_validator(mode="after")
    def _one_of_both(self) -> Replace:
        if (self.pattern is None) == (not self.characters):
            raise ValueError("give either a pattern or characters")
        if long := [key for key in self.characters if len(key) != 1]:
            raise ValueError(f"{long[0]!r} in characters is not one character")
        either = "|".join(map(re.escape, self.characters))
        try:
            self._regex = re.compile(either if self.pattern is None else self.pattern)
            self._regex.sub(self.replacement, "")
        except (re.error, IndexError, RecursionError, OverflowError) as error:
            pair = f"{self.pattern!r} with the replacement {self.replacement!r}"
            raise ValueError(f"{pair} is not a regular expression: {error}") from None
        return self

    def apply(self, docs: Documents) -> Documents:
        from curate.documents.cutting import cut

        dropped, texts = docs.marked(), docs.text.to_pylist()
        codes: dict[str, int] = {}  # of replacements
        edits: list[tuple[int, int, int, int]] = []
        for row, text in enumerate(texts):
            for a, z, new in self._matches(text or "") if not dropped[row] else ():
                edits.append((row, a, z, codes.setdefault(new, len(codes))))
        rows, start, end, code = (np.array([e[k] for e in edits], np.int64) for k in range(4))
        rule = np.zeros(len(edits), np.int64)
        return cut(docs, Spans(rows, start, end, rule, ("match",), code, tuple(codes)))

    def _matches(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, replacement) of each match, in bytes."""
        at = byte = 0
        for match in self._regex.finditer(text):
            a, z = match.span()
            old = match.group()
            new = self.characters[old] if self.characters else match.expand(self.replacement)
            if new == old:
                continue
            start = byte + len(text[at:a].encode())
            byte = start + len(old.encode())
            at = z
            yield start, byte, new
