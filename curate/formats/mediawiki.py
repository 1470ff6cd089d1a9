"""MediaWiki XML dumps: an article a document, its wikitext as text.

Pages of the main namespace become documents; redirects, other namespaces (talk, templates, ...)
and content that is no wikitext are other records. The text begins with the title (as in the Pile:
Gao et al. 2020, C.3). Of several revisions of a page the newest counts. Dumps are read page by
page, wherever their lines end; plain and multistream files are cut into partitions.
https://www.mediawiki.org/xml/export-0.11.xsd
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from curate.formats.compression import decompressed_chunks, open_input, verified_boundaries
from curate.formats.dates import parse_date
from curate.formats.elements import Element, elements
from curate.formats.events import Corrupt, Event, Portion, Row, Skipped
from curate.formats.jsonl import slices as ranges_of_lines
from curate.formats.wikitext import Site, plain_text

COLUMNS = {"wiki.title": "string"}
HEAD, MOST_HEAD = (
    1 << 14,
    1 << 20,
)  # bytes that begin with the root's tag; that hold all on the site
FILE, CATEGORY = "6", "14"  # numbers of namespaces whose links are no text


def slices(file: Any, target: int) -> list[tuple[int, int | None]]:
    """A plain file in ranges of bytes; a multistream one at its streams, which begin with pages."""
    if file.codec == "plain" or file.size <= target + target // 2:
        return ranges_of_lines(file, target)
    with open_input(file.path) as dump:
        starts = verified_boundaries(dump, file.size, target, _begins_page)
    return list(zip(starts, [*starts[1:], None], strict=True))


def _begins_page(data: bytes) -> bool:
    return data.lstrip().startswith((b"<page>", b"<page "))


def read(portion: Portion) -> Iterator[Event]:
    """The events of the pages that begin in the portion."""
    site = _site(portion)
    damage: list[Corrupt] = []
    end = portion.end if portion.codec == "plain" else None
    with open_input(portion.path) as file:
        chunks = decompressed_chunks(
            file,
            portion.codec,
            lambda offset, what: damage.append(Corrupt(offset, what)),
            start=portion.start,
            end=portion.end,
        )
        for page in elements(chunks, portion.start, end, b"page", portion.max_record):
            yield from damage
            damage.clear()
            yield _event(page, portion.max_record, site)
    yield from damage


def _site(portion: Portion) -> Site:
    """The description at the beginning of the file."""
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
        return element.too_large(limit)
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
        return Corrupt(offset, f"page {title[:80]!r}: wikitext that cannot be read ({error})")
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
