"""Wikitext as text: the prose of an article.

Templates, tables and notes are left out, links to files and categories, and headings with nothing
below them; formulas stay as LaTeX. Parsed by mwparserfromhell.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# Tags whose content is no prose: notes and tables, as in WikiExtractor.
DROPPED = frozenset(
    "ref references table gallery timeline imagemap graph score templatedata categorytree inputbox"
    " templatestyles".split()
)
# The parser goes back over what nothing closes: its time grows with their number times the length.
MOST_OPEN, MOST_WORK = 500, 100_000_000
_MARK = re.compile(r"[\[\]{}]|<(/?)([^\s<>/!][^\s<>/]{0,40})([^<>]*)(>?)")
_MARKERS = re.compile(r"^([*#:;]{20})[*#:;]+", re.M)  # of lists: no prose is so deep
_ALONE = frozenset("br wbr hr meta link img li dt dd th td tr".split())  # tags that need no end
_OPENS = {"]": "[", "}": "{"}
Part = tuple[int, str]  # the level of a heading (0: prose), and its text
_SWITCH = re.compile(r"__[A-Z]{4,30}__")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]{1,10}){0,2}|simple")  # of a link to another wiki
# What templates leave of parentheses: `Alabama () is`, `Achilles (; , Akhilleus)`.
_HOLLOW = (
    (re.compile(r"(?<=\w) \([ ,;]*\)"), ""),
    (re.compile(r"(?<= )\((?: ?[,;])+ ?"), "("),
    (re.compile(r"(?<=\w)(?: ?[,;])+ ?\)"), ")"),
)
_BLANK = re.compile(r"(?<![ \t])[ \t]*\n(?:[ \t]*\n)+")


@dataclass(frozen=True)
class Site:
    """What the beginning of a dump says of its wiki. dropped: names of namespaces, lower case, to
    which links are no text."""

    name: str = ""
    lang: str | None = None
    home: str = ""
    dropped: frozenset[str] = field(default=frozenset(("file", "image", "category")))


def plain_text(wikitext: str, site: Site) -> str:
    """The prose of an article. ValueError for what is made to be slow."""
    import mwparserfromhell

    wikitext = _MARKERS.sub(r"\1", _without_comments(wikitext))
    unclosed = _unclosed(wikitext)
    if unclosed > MOST_OPEN or unclosed * len(wikitext) > MOST_WORK:
        raise ValueError(f"{unclosed} brackets and tags are not closed")
    parts: list[Part] = []
    _collect(mwparserfromhell.parse(wikitext, skip_style_tags=True), site, parts)
    kept: list[str] = []
    below = 1  # the level of the heading that follows with no prose before it; 0: prose follows
    for level, part in reversed(parts):
        if level and below and level >= below:
            continue
        if level or part.strip():
            below = level
        kept.append(part)
    text = _SWITCH.sub("", "".join(reversed(kept))).replace("'''", "").replace("''", "")
    for pattern, put in _HOLLOW:
        text = pattern.sub(put, text)
    return _BLANK.sub("\n\n", text.replace("\xa0", " ")).strip()


def _unclosed(text: str) -> int:
    """The number of brackets, braces and tags that nothing closes where they may be closed."""
    stack: list[str] = []
    counts: Counter[str] = Counter()
    unclosed = 0
    for match in _MARK.finditer(text):
        mark = match[0]
        closes, name = mark in _OPENS or match[1], (match[2] or _OPENS.get(mark, mark)).lower()
        if match[2] and not match[4]:
            unclosed += 1
        elif closes and counts[name]:
            while (last := stack.pop()) != name:
                counts[last] -= 1
                unclosed += 1
            counts[name] -= 1
        elif not (closes or name in _ALONE or (match[3] or "").endswith("/")):
            stack.append(name)
            counts[name] += 1
    return unclosed + len(stack)


def _without_comments(text: str) -> str:
    """Without comments; one that nothing closes reaches to the end, as in MediaWiki."""
    pieces: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0:
        pieces.append(text[at:start])
        end = text.find("-->", start)
        at = len(text) if end < 0 else end + 3
    return "".join([*pieces, text[at:]])


def _collect(code: Any, site: Site, parts: list[Part]) -> None:
    """The text of all nodes, in order."""
    from mwparserfromhell import nodes

    for node in code.nodes:
        if isinstance(node, nodes.Text):
            parts.append((0, str(node.value)))
        elif isinstance(node, nodes.Heading):
            inner: list[Part] = []
            _collect(node.title, site, inner)
            heading = "".join(part for _, part in inner).strip()
            parts.append((node.level, f"\n\n{heading}\n\n"))
        elif isinstance(node, nodes.Wikilink):
            prefix = str(node.title).partition(":")[0].strip()
            space = prefix.lower()
            other = node.text is None and _LANGUAGE.fullmatch(prefix)
            if ":" not in str(node.title) or not (other or space in site.dropped):
                _collect(node.text if node.text is not None else node.title, site, parts)
        elif isinstance(node, nodes.ExternalLink):
            if node.title is not None:
                _collect(node.title, site, parts)
        elif isinstance(node, nodes.HTMLEntity):
            parts.append((0, str(node.normalize() or "")))
        elif isinstance(node, nodes.Tag):
            name = str(node.tag).strip().lower()
            if name == "math":
                parts.append((0, f"${str(node.contents or '').strip()}$"))
            elif name == "br":
                parts.append((0, "\n"))
            elif name in ("li", "dt", "dd") and node.wiki_markup:
                parts.append((0, str(node.wiki_markup)))
            elif name not in DROPPED and node.contents is not None:
                _collect(node.contents, site, parts)
