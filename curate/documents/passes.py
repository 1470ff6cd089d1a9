"""Texts edited in several passes: each pass replaces the matches of a pattern in the output of the
pass before. An edit is recorded with its position in the original text, before the first pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from curate.documents.documents import Documents
from curate.documents.edits import Spans

Replace = Callable[[re.Match[str]], str]
# Row, first byte, last byte + 1, index of the rule, replacement.
RowEdit = tuple[int, int, int, int, str]
Pass = tuple[int, re.Pattern[str], Replace]  # index of the rule, pattern, replacement


class Edited:
    """A text edited in several passes, and the original position of each of its characters."""

    def __init__(self, text: str) -> None:
        self.given = self.text = text
        self.origin = np.arange(len(text) + 1)  # of each character: its position in the given text
        self.is_given = np.ones(len(text), np.bool_)  # False for inserted characters
        self.rule = np.zeros(len(text), np.uint8)  # of a replaced character: index of its rule + 1

    def replace(self, rule: int, pattern: re.Pattern[str], replacement: Replace) -> None:
        """Replace every match in the current text. `rule` is the index of the rule to record."""
        pieces, origin, masks = [], [], []
        last = 0
        for match in pattern.finditer(self.text):
            a, z = match.span()
            new = replacement(match)
            if new == match.group():
                continue
            pieces += [self.text[last:a], new]
            origin += [self.origin[last:a], np.full(len(new), self.origin[a])]
            masks += [self.is_given[last:a], np.zeros(len(new), np.bool_)]
            replaced_by = self.rule[self.origin[a] : self.origin[z]]
            replaced_by[replaced_by == 0] = rule + 1
            last = z
        if not pieces:
            return
        self.text = "".join([*pieces, self.text[last:]])
        self.origin = np.concatenate([*origin, self.origin[last:]])
        self.is_given = np.concatenate([*masks, self.is_given[last:]])

    def spans(self) -> list[tuple[int, int, int, str]]:
        """Return (start, end, rule, replacement) of the edits, in order. Positions are bytes of the
        text before all passes."""
        kept = np.flatnonzero(self.is_given)
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
            new = self.text[places[gap] + 1 : places[gap + 1]]
            spans.append((int(byte[a]), int(byte[z]), int(self.rule[a]) - 1, new))
        return spans


def edited_in_passes(
    docs: Documents, rows: Iterable[int], passes: Sequence[Pass], rules: tuple[str, ...]
) -> Documents:
    """Return the batch after the passes over the texts of some rows, with the edits recorded."""
    edits: list[RowEdit] = []
    column = docs.text
    for row in rows:
        edited = Edited(column[row].as_py() or "")
        for rule, pattern, replacement in passes:
            edited.replace(rule, pattern, replacement)
        edits += ((row, *span) for span in edited.spans())
    return with_edits(docs, edits, rules)


def with_edits(docs: Documents, edits: Sequence[RowEdit], rules: tuple[str, ...]) -> Documents:
    """Return the batch with its texts edited and the edits recorded. The edits must be in order and
    disjoint."""
    from curate.documents.cutting import cut

    texts: dict[str, int] = {"": 0}
    numbers = [(*edit[:4], texts.setdefault(edit[4], len(texts))) for edit in edits]
    columns = np.array(numbers, np.int64).reshape(-1, 5).T
    rows, start, end, rule, filling = columns
    return cut(docs, Spans(rows, start, end, rule, rules, filling, tuple(texts)))
