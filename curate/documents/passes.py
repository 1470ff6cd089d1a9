"""Texts edited in several passes over them, each of which sees what the last one left.

What is on record as edited is in places of the text as the step received it, whatever passes did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from curate.documents.documents import Documents
from curate.documents.edits import Spans

Replace = Callable[[re.Match[str]], str]
# Row, first byte, last (exclusive), the rule by number, what stands there then.
RowEdit = tuple[int, int, int, int, str]
Pass = tuple[int, re.Pattern[str], Replace]  # its rule by number, what it looks for, what it puts


class Edited:
    """A text on its way through passes, and where each of its characters came from."""

    def __init__(self, text: str) -> None:
        self.given = self.text = text
        self.origin = np.arange(len(text) + 1)  # place in the given text of the character here
        self.own = np.ones(len(text), np.bool_)  # whether it is that character
        self.rule = np.zeros(len(text), np.uint8)  # of a given character: the rule that took it

    def replace(self, rule: int, pattern: re.Pattern[str], replacement: Replace) -> None:
        """One pass: every match in the text as it stands now."""
        pieces, origin, masks = [], [], []
        last = 0
        for match in pattern.finditer(self.text):
            a, z = match.span()
            put = replacement(match)
            if put == match.group():
                continue
            pieces += [self.text[last:a], put]
            origin += [self.origin[last:a], np.full(len(put), self.origin[a])]
            masks += [self.own[last:a], np.zeros(len(put), np.bool_)]
            taken = self.rule[self.origin[a] : self.origin[z]]
            taken[taken == 0] = rule + 1
            last = z
        if not pieces:
            return
        self.text = "".join([*pieces, self.text[last:]])
        self.origin = np.concatenate([*origin, self.origin[last:]])
        self.own = np.concatenate([*masks, self.own[last:]])

    def spans(self) -> list[tuple[int, int, int, str]]:
        """(start, end, rule, what stands there now), in bytes of the given text, in order."""
        kept = np.flatnonzero(self.own)
        origins = self.origin[kept]
        before = np.concatenate(([-1], origins))
        after = np.concatenate((origins, [len(self.given)]))
        spans = []
        gaps = np.flatnonzero(after - before > 1)
        if not len(gaps):
            return []
        size = np.frombuffer(self.given.encode("utf-32-le", "surrogatepass"), np.uint32)
        width = 1 + (size >= 0x80) + (size >= 0x800) + (size >= 0x10000)
        byte = np.concatenate(([0], np.cumsum(width)))
        places = np.concatenate(([-1], kept, [len(self.text)]))
        for gap in gaps.tolist():
            a, z = int(before[gap]) + 1, int(after[gap])
            put = self.text[places[gap] + 1 : places[gap + 1]]
            spans.append((int(byte[a]), int(byte[z]), int(self.rule[a]) - 1, put))
        return spans


def edited_in_passes(
    docs: Documents, rows: Iterable[int], passes: Sequence[Pass], rules: tuple[str, ...]
) -> Documents:
    """The batch after passes over the texts of some rows, in order; all edits are on record."""
    edits: list[RowEdit] = []
    column = docs.text
    for row in rows:
        edited = Edited(column[row].as_py() or "")
        for rule, pattern, replacement in passes:
            edited.replace(rule, pattern, replacement)
        edits += ((row, *span) for span in edited.spans())
    return with_edits(docs, edits, rules)


def with_edits(docs: Documents, edits: Sequence[RowEdit], rules: tuple[str, ...]) -> Documents:
    """The batch after edits, which are ordered and apart, on record."""
    from curate.documents.cutting import cut

    texts: dict[str, int] = {"": 0}
    numbers = [(*edit[:4], texts.setdefault(edit[4], len(texts))) for edit in edits]
    columns = np.array(numbers, np.int64).reshape(-1, 5).T
    rows, start, end, which, filling = columns
    return cut(docs, Spans(rows, start, end, which, rules, filling, tuple(texts)))
