"""Find readers' comments by a page's structure, not by the network that chooses main text (net.py).

Comments follow the main text, in an element marked by class, id, role, itemprop or itemtype, or as
a row of equal elements that each begin with a name and a date. Only articles are searched: in
documentation "respond" has other senses, and the posts of a forum are the main text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from curate.extract import tags
from curate.extract.attributes import BIT
from curate.extract.scan import BY_TYPE

# The heading between a text and its comments, in plain text and in Markdown.
MARKS = (b"\n\n=== Comments ===\n\n", b"\n\n## Comments\n\n")
_BY_HINT = BIT["comment"] | BY_TYPE
_ELSEWHERE = sum(BIT[n] for n in "nav side footer share related advert cookie form".split())
_HEADINGS = [tags.TAG[f"h{k}"] for k in range(1, 7)]
_UNITS = [tags.TAG[n] for n in "li div article section dd".split()]
ENOUGH = 30  # bytes that a comment's text must have
LINE = 120  # bytes of a block in which a name and a date are looked for
SEVERAL = 2  # if more marked elements are nested, they are comments even without a date
# A date in digits, with a month's name, as a time of day, or as a time before now.
_DATE = (
    r"(?:\d{1,4}[./-]\d{1,2}[./-]\d|\d{1,2}:\d\d|\d{1,2}\D{1,20}\d{4}|\d{4}年|\d+\D{1,20}\bago\b"
    r"|\d+\D{0,3}前|\d+.{1,12}ที่แล้ว|(?:vor|il y a|قبل|منذ) \d)"
)
_DATED, _BEGINS = re.compile(_DATE), re.compile(r"[^\W\d_]\D{1,60}?" + _DATE)


def split(
    text: np.ndarray, blocks: Any, nodes: Any, keep: np.ndarray, comments: str
) -> list[np.ndarray]:
    """Separate readers' comments from the main text. Return two arrays [text, comments], or only
    [text] if no comments are found or `comments` is `drop`. Each is bool[blocks], True for the
    blocks of that kind. `keep` (bool[blocks]) is True for the blocks that the network (net.py)
    chose as main text. Links, forms and headings count as comments only if they are in `keep`."""
    raw, parents = text.tobytes(), nodes[:, tags.N_PARENT].tolist()
    size = blocks[:, tags.END] - blocks[:, tags.START]
    heading = np.isin(nodes[blocks[:, tags.NODE], tags.N_TAG], _HEADINGS)
    plain = ~heading & (2 * blocks[:, tags.LINK_BYTES] <= size)
    before = np.concatenate([[0], np.cumsum(size * keep)])
    first, last = (
        [len(blocks)] * len(nodes),
        [-1] * len(nodes),
    )  # first and last block inside each node
    for i, n in enumerate(blocks[:, tags.NODE].tolist()):
        first[n], last[n] = min(first[n], i), i
    for n in range(len(nodes) - 1, 0, -1):
        up = parents[n]
        first[up], last[up] = min(first[up], first[n]), max(last[up], last[n])
    within, wrote = np.zeros(len(blocks), np.bool_), np.zeros(len(blocks), np.bool_)

    def beginnings(a: int, z: int) -> str:
        spans = blocks[a:z, [tags.START, tags.END]].tolist()
        return "\n".join(raw[s : min(e, s + LINE)].decode("utf-8", "ignore") for s, e in spans)

    def is_comment(n: int) -> bool:
        a, z = first[n], last[n] + 1
        has_text = (plain[a + 1 : z] & (size[a + 1 : z] >= ENOUGH)).any() and not heading[a:z].any()
        return bool(has_text and _BEGINS.match(beginnings(a, min(z, a + 3))))

    def rows(chosen: np.ndarray) -> Iterator[tuple[list[int], int, int]]:
        """Yield (elements, first block, last block + 1) for each group of `chosen` elements with
        the same parent, tag and class. Only groups outside the comments found so far are yielded,
        and only if more of the main text is before the group than after it."""
        groups = defaultdict(list)
        for n in np.flatnonzero(chosen).tolist():
            if last[n] >= 0:
                groups[parents[n], int(nodes[n, tags.N_KEY])].append(n)
        for units in groups.values():
            a, z = first[units[0]], last[units[-1]] + 1
            if not within[a] and before[a] > before[-1] - before[z]:  # most of the text is before
                yield units, a, z

    def add(a: int, z: int, sure: bool) -> None:
        within[a - (a > 0 and heading[a - 1]) : z] = True
        if (plain & (size >= ENOUGH))[a:z].any() and (sure or _DATED.search(beginnings(a, z))):
            wrote[a:z] = plain[a:z]

    hinted = (nodes[:, tags.N_OWN] & _BY_HINT != 0) & ~np.isin(nodes[:, tags.N_TAG], _HEADINGS)
    inner = np.bincount(np.array(first)[hinted], minlength=len(blocks) + 1).cumsum()
    for _, a, z in rows(hinted):
        add(a, z, inner[z - 1] - (inner[a - 1] if a else 0) > SEVERAL)
    if not within.any():
        of_text = nodes[:, tags.N_ALL] & _ELSEWHERE == 0
        for units, a, z in rows(of_text & np.isin(nodes[:, tags.N_TAG], _UNITS)):
            if len(units) > 1 and all(map(is_comment, units)):
                add(a, z, True)
    end = 0
    for n in np.flatnonzero(nodes[:, tags.N_TAG] == tags.TAG["form"]).tolist():
        if end <= first[n] <= last[n] and within[first[n]]:  # not a form around the whole page
            end = last[n] + 1
            wrote[first[n] : end] = False
    found = within & (keep | wrote)
    return [keep & ~within, found] if comments != "drop" and found.any() else [keep & ~within]
