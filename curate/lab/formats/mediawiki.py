"""MediaWiki XML dumps: one document per article, its wikitext as plain text.

Pages of the main namespace become documents. Redirects, other namespaces (talk, templates, ...) and
content that is not wikitext are skipped. The text begins with the title (as in the Pile: Gao et al.
2020, C.3). Of several revisions the newest is used. Plain and multistream files are split into
partitions. https://www.mediawiki.org/xml/export-0.11.xsd

mwparserfromhell parses the wikitext. Templates, tables, notes, links to files and categories, and
headings with nothing below them are dropped. Formulas are kept as LaTeX.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from curate.formats.compression import decompressed_chunks, open_input, verified_boundaries
from curate.formats.dates import parse_date
from curate.formats.elements import Element, elements
from curate.formats.events import Corrupt, Event, NewDamage, Portion, Row, Skipped, too_large
from curate.formats.kinds import reader
from curate.formats.lines import ranges as ranges_of_lines

# Tags whose content is not prose: notes and tables, as in WikiExtractor.
DROPPED = frozenset(
    "ref references table gallery timeline imagemap graph score templatedata categorytree inputbox"
    " templatestyles".split()
)
# The parser backtracks at unclosed marks: its time grows with their number times the text's length.
MOST_OPEN, MOST_WORK = 500, 100_000_000
_MARK = re.compile(r"[\[\]{}]|<(/?)([^\s<>/!][^\s<>/]{0,40})([^<>]*)(>?)")
_MARKERS = re.compile(r"^([*#:;]{20})[*#:;]+", re.M)  # list markers deeper than any real list
_ALONE = frozenset("br wbr hr meta link img li dt dd th td tr".split())  # tags that need no end tag
_OPENS = {"]": "[", "}": "{"}
Part = tuple[int, str]  # the level of a heading (0: prose), and its text
# Languages with several variants in one text (www.mediawiki.org/wiki/Writing_systems/Syntax), and
# the variants that are preferred.
VARIED = "ban crh gan ike iu kk ku mni sh shi sr tg tly uz wuu zgh zh".split()
PREFERRED = ("zh-hans", "zh-cn")
MOST_NESTED = 10  # nested rules of language variants, as in MediaWiki
_CODE = rf"(?:{'|'.join(VARIED)})(?:-[a-z]{{2,10}})?"
_FLAGS = re.compile(rf"\s{{0,9}}(?:(?:[ADHNRST+-]|{_CODE})\s{{0,9}};?\s{{0,9}}){{1,20}}\|")
_VARIANT = re.compile(rf"(?:^|;)\s{{0,9}}(?:[^;:=]{{0,99}}=>\s{{0,9}})?({_CODE})\s{{0,9}}:")
_RULE = re.compile(
    r"-\{(?!\{[^{])|\}-|\{\{|\}\}"
    r"|<(math|chem|ce|nowiki|pre|source|syntaxhighlight)\b[^<>]{0,500}(?<!/)>",
    re.I,
)
_SWITCH = re.compile(r"__[A-Z]{4,30}__")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]{1,10}){0,2}|simple")  # of a wiki, before a link
# Parentheses that removed templates leave empty: `Alabama () is`, `Achilles (; , Akhilleus)`.
_HOLLOW = (
    (re.compile(r"(?<=\w) \([ ,;]*\)"), ""),
    (re.compile(r"(?<= )\((?: ?[,;])+ ?"), "("),
    (re.compile(r"(?<=\w)(?: ?[,;])+ ?\)"), ")"),
)
_BLANK = re.compile(r"(?<![ \t])[ \t]*\n(?:[ \t]*\n)+")


@dataclass(frozen=True)
class Site:
    """The wiki of a dump. Links to the namespaces `dropped` (in lower case) are left out of
    texts."""

    name: str = ""
    lang: str | None = None
    home: str = ""  # address before the page's name
    dropped: frozenset[str] = field(default=frozenset(("file", "image", "category")))


def plain_text(wikitext: str, site: Site) -> str:
    """Return the prose of an article. Raises ValueError if too many brackets and tags are open."""
    import mwparserfromhell

    wikitext = _MARKERS.sub(r"\1", _without_comments(wikitext))
    if (site.lang or "zh").partition("-")[0] in VARIED:
        wikitext = _in_one_variant(wikitext)
    unclosed = _unclosed(wikitext)
    if unclosed > MOST_OPEN or unclosed * len(wikitext) > MOST_WORK:
        raise ValueError(f"{unclosed} brackets and tags are not closed")
    parts: list[Part] = []
    _collect(mwparserfromhell.parse(wikitext, skip_style_tags=True), site, parts)
    kept: list[str] = []
    below = 1  # level of the next heading if no prose precedes it, 0 if prose follows
    for level, part in reversed(parts):
        if level and below and level >= below:
            continue
        if level or part.strip():
            below = level
        kept.append(part)
    text = _SWITCH.sub("", "".join(reversed(kept))).replace("'''", "").replace("''", "")
    for pattern, replacement in _HOLLOW:
        text = pattern.sub(replacement, text)
    return _BLANK.sub("\n\n", text.replace("\xa0", " ")).strip()


def _unclosed(text: str) -> int:
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
    pieces: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0:
        pieces.append(text[at:start])
        end = text.find("-->", start)
        at = len(text) if end < 0 else end + 3
    return "".join([*pieces, text[at:]])


def _in_one_variant(text: str) -> str:
    levels: list[tuple[list[str], int]] = []  # for each open rule, the text and templates before it
    pieces: list[str] = []
    templates = at = kept = 0
    unclosed: set[str] = set()
    while match := _RULE.search(text, at):
        mark, at = match[0], match.end()
        if name := (match[1] or "").lower():
            closing = re.compile(f"</{name}", re.I)
            end = None if name in unclosed else closing.search(text, at)
            at = end.start() if end else at
            unclosed |= set() if end else {name}
        elif mark == "-{" and len(levels) < MOST_NESTED:
            pieces.append(text[kept : match.start()])
            levels.append((pieces, templates))
            pieces, templates, kept = [], 0, at
        elif mark == "{{":
            templates += 1
        elif mark == "}}" and templates:
            templates -= 1
        elif mark == "}}":
            at -= 1
        elif mark == "}-" and levels:
            inner = "".join([*pieces, text[kept : match.start()]])
            (pieces, templates), kept = levels.pop(), at
            pieces.append(_rule_text(inner))
    for before, _ in reversed(levels):
        pieces = [*before, "-{", *pieces]
    return "".join([*pieces, text[kept:]])


def _rule_text(rule: str) -> str:
    stated = _FLAGS.match(rule)
    flags = set(re.findall("[A-Z-]", re.sub(_CODE, "", stated[0]))) if stated else set()
    text = rule[stated.end() :] if stated else rule
    if flags & {"H", "T", "-"}:
        return ""
    found = [] if flags & {"R", "N"} else [*_VARIANT.finditer(text)]
    if not found or found[0].start():
        return text
    ends = [*(match.start() for match in found[1:]), len(text)]
    values = {m[1]: text[m.end() : end] for m, end in zip(found, ends, strict=True)}
    code = next((code for code in PREFERRED if code in values), found[0][1])
    return values[code].strip().removesuffix(";")


def _collect(code: Any, site: Site, parts: list[Part]) -> None:
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
            is_language_link = node.text is None and _LANGUAGE.fullmatch(prefix)
            if ":" not in str(node.title) or not (is_language_link or space in site.dropped):
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


COLUMNS = {"wiki.title": "string"}
HEAD, MOST_HEAD = 1 << 14, 1 << 20  # bytes searched for the root's tag, and for <siteinfo>
FILE, CATEGORY = "6", "14"  # numbers of the namespaces whose links are not text


def slices(file: Any, target: int) -> list[tuple[int, int | None]]:
    """Return (start, end) of each part into which a dump is split, in bytes; an end of None is the
    end of the file. A plain file is split at lines, a multistream file at compressed streams that
    begin with a page."""
    if file.codec == "plain" or file.size <= target + target // 2:
        return ranges_of_lines(file, target)
    with open_input(file.path) as dump:
        begun = lambda data: data.lstrip().startswith((b"<page>", b"<page "))  # noqa: E731
        starts = verified_boundaries(dump, file.size, target, begun)
    return list(zip(starts, [*starts[1:], None], strict=True))


@reader(
    "mediawiki",
    begins=r"(?:<\?xml[^>]{0,200}\?>)?\s*<mediawiki\b",
    package="mwparserfromhell",
    extra="wiki",
)
def read(portion: Portion) -> Iterator[Event]:
    site = _site(portion)
    damage = NewDamage()
    end = portion.end if portion.codec == "plain" else None
    with open_input(portion.path) as file:
        chunks = decompressed_chunks(
            file, portion.codec, damage, start=portion.start, end=portion.end
        )
        for page in elements(chunks, portion.start, end, b"page", portion.max_record):
            yield from damage.drain()
            yield _event(page, portion.max_record, site)
    yield from damage


def _site(portion: Portion) -> Site:
    head = b""
    with open_input(portion.path) as file:
        for chunk in decompressed_chunks(file, portion.codec, lambda offset, what: None):
            head += chunk
            if b"</siteinfo>" in head or len(head) > MOST_HEAD:
                break
    lang = re.search(rb"<mediawiki[^>]{0,2000}xml:lang=[\"']([A-Za-z-]{1,20})[\"']", head[:HEAD])
    start, end = head.find(b"<siteinfo>"), head.find(b"</siteinfo>")
    try:
        info = ElementTree.fromstring(head[start : end + 11]) if -1 < start < end else None
    except ElementTree.ParseError:
        info = None
    if info is None:
        return Site()
    names = [n.text for n in info.iter("namespace") if n.get("key") in (FILE, CATEGORY)]
    dropped = {name.lower() for name in names if name} | Site().dropped
    return Site(
        name=info.findtext("dbname") or "",
        lang=lang[1].decode() if lang else None,
        home=(info.findtext("base") or "").rpartition("/")[0],
        dropped=frozenset(dropped),
    )


def _event(element: Element, limit: int, site: Site) -> Event:
    offset = element.offset
    if not element.whole:
        return Corrupt(offset, "a page is cut short")
    if element.data is None:
        return too_large("record_too_large", element.size, limit, offset)
    try:
        page = ElementTree.fromstring(element.data)
    except ElementTree.ParseError as error:
        return Corrupt(offset, f"not XML: {error}")
    space = (page.findtext("ns") or "0").strip()[:10]
    if page.find("redirect") is not None:
        return Skipped("wiki:redirect", offset)
    if space != "0":
        return Skipped(f"wiki:namespace-{space}", offset)
    revisions = page.findall("revision")
    revision = max(revisions, key=lambda r: r.findtext("timestamp") or "", default=None)
    if revision is None:
        return Corrupt(offset, "a page without a revision")
    model = (revision.findtext("model") or "wikitext").strip()[:40]
    if model != "wikitext":
        return Skipped(f"wiki:model-{model}", offset)
    title = (page.findtext("title") or "").strip()
    try:
        text = plain_text(revision.findtext("text") or "", site)
    except (RecursionError, ValueError, RuntimeError) as error:
        return Corrupt(offset, f"page {title[:80]!r}: the wikitext cannot be parsed ({error})")
    number = (page.findtext("id") or "").strip()
    return Row(
        id=f"{site.name}:{number}" if site.name and number else None,
        url=f"{site.home}/{quote(title.replace(' ', '_'))}" if site.home else None,
        date=parse_date(revision.findtext("timestamp")),
        text=f"{title}\n\n{text}".strip(),
        lang=site.lang,
        extra={"wiki.title": title},
        offset=offset,
    )
