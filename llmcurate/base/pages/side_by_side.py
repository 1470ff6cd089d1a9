"""Two texts side by side: words that only one text has are marked, long common passages shortened.

Common passages are runs of words that occur anywhere in both texts. The texts are not aligned, so
time and memory grow linearly with their lengths, and a passage that moved is no difference.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from llmcurate.base.terminal import visible

if TYPE_CHECKING:
    from markupsafe import Markup

RUN = 4  # words in a row that both texts must have
MOST_READ = 400_000  # characters of a text that are compared
MOST_SHOWN = 6_000  # characters of a text that are shown
CONTEXT = 90  # characters shown on either side of a difference
_WORD = re.compile(r"\w+")
Lines = list[list[str]]


def side_by_side(first: str, second: str) -> tuple[Markup, Markup]:
    """Return both texts as HTML. Words only in the first text are <del>, words only in the second
    are <ins>. Common passages are shortened, and a long text ends with an ellipsis."""
    texts = [
        [line.strip() for line in text[:MOST_READ].splitlines() if line.strip()]
        for text in (first, second)
    ]
    a, b = ([[w.lower() for w in _WORD.findall(line)] for line in lines] for lines in texts)
    more = [len(text) > MOST_READ for text in (first, second)]
    return (
        _marked(texts[0], words_in_both(a, b), "del", more[0]),
        _marked(texts[1], words_in_both(b, a), "ins", more[1]),
    )


def words_in_both(lines_of_text: Lines, others: Lines) -> list[list[bool]]:
    """Return for each word of each line True if the word is in both texts. There are two ways: the
    word is in a run of RUN words, possibly across lines, that `others` also have; or it is in a
    line of fewer than RUN words that `others` also have. If `others` have a run or a line n times,
    only its first n occurrences count."""
    flat, other = ([word for line in lines for word in line] for lines in (lines_of_text, others))
    unmatched = Counter(zip(*(other[k:] for k in range(RUN)), strict=False))
    marks = [False] * len(flat)
    for at, run in enumerate(zip(*(flat[k:] for k in range(RUN)), strict=False)):
        if unmatched[run] > 0:
            unmatched[run] -= 1
            marks[at : at + RUN] = [True] * RUN
    lines = Counter(tuple(line) for line in others if len(line) < RUN)
    result, at = [], 0
    for line in lines_of_text:
        line_marks = marks[at : at + len(line)]
        at += len(line)
        if len(line) < RUN and lines[tuple(line)] > 0:
            lines[tuple(line)] -= 1
            line_marks = [True] * len(line)
        result.append(line_marks)
    return result


def _marked(lines: list[str], both: list[list[bool]], tag: str, more: bool) -> Markup:
    from markupsafe import Markup

    shown: list[Markup] = []
    size = 0
    pairs = zip(lines, both, strict=True)
    for equal, run in groupby(pairs, key=lambda pair: all(pair[1])):
        block = list(run)
        if equal and len(block) > 3:
            note = Markup("<i class=note>({} lines in both)</i>").format(len(block) - 2)
            parts = [_line(*block[0], tag), note, _line(*block[-1], tag)]
        else:
            parts = [_line(line, words, tag) for line, words in block]
        for part in parts:
            if size > MOST_SHOWN:
                return Markup("\n").join([*shown, Markup("\u2026")])
            shown.append(part)
            size += len(part)
    return Markup("\n").join([*shown, Markup("\u2026")] if more else shown)


def _line(line: str, both: list[bool], tag: str) -> Markup:
    from markupsafe import Markup

    if all(both):
        return Markup("{}").format(_short(line, False))
    starts = [match.start() for match in _WORD.finditer(line)]
    parts: list[Markup] = []
    at = 0
    for equal, run in groupby(range(len(both)), key=lambda word: both[word]):
        last = list(run)[-1]
        end = starts[last + 1] if last + 1 < len(both) else len(line)
        text = _short(line[at:end], not equal)
        parts.append(Markup("{}" if equal else f"<{tag}>{{}}</{tag}>").format(text))
        at = end
    return Markup("").join(parts)


def _short(text: str, differs: bool) -> str:
    side = MOST_SHOWN // 6 if differs else CONTEXT
    if len(text) > 2 * side + 20:
        text = f"{text[:side]} \u2026 {text[-side:]}"
    return visible(text)
