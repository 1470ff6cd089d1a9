"""Links in Markdown: `[text](absolute url)`."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import numpy as np

from curate.extract.tags import END, HREF, LINK_COLUMNS, N_PRE, NODE, START

MAX_URL = 2000  # characters; longer links are ignored, so time stays linear in the page
_BASE = re.compile(rb"<base\b[^<>]*?\bhref\s*=\s*[\"']?([^\s\"'<>]+)", re.I)
_BASE_WITHIN = 1 << 16  # bytes of a page in which `base` is looked for
_UNSAFE = re.compile(r"[\s\x00-\x1f()<>\[\]|\\`]")  # would end a link or a cell of Markdown


def link_table(tags: int) -> np.ndarray:
    """Return an empty table in which the scanner (scan.py) notes links, with one row per tag."""
    return np.zeros((tags, LINK_COLUMNS), np.int64)


def absolute(href: str, base: str) -> str | None:
    """Return the http URL of an `href` on a page with the URL `base`, escaped for Markdown. Returns
    None for a place on the same page, another scheme, or an invalid or too long URL."""
    href = re.sub(r"[\t\n\r]", "", unescape(href)).strip()  # URL Standard, 4.4
    try:
        url = urljoin(base, href)
        parts = urlsplit(url)
        if not href or href[0] == "#" or parts.scheme not in ("http", "https") or not parts.netloc:
            return None
    except ValueError:  # such as http://[
        return None
    return _UNSAFE.sub(lambda c: quote(c[0]), url) if len(url) <= MAX_URL else None


def with_links(
    text: Any, blocks: Any, nodes: Any, links: Any, page: Any, start: int, url: str
) -> tuple[np.ndarray, Any]:
    """Return (text: uint8[], blocks) with Markdown links, except in preformatted text. `links` is
    the table that scan.py filled. `page` (uint8[]) has the page's bytes, and `start` is their
    offset in the scanner's data. `url` is the page's address. A link over several blocks is written
    only in the first of them."""
    raw, shown, written = text.tobytes(), blocks.copy(), bytearray()
    if found := _BASE.search(page[:_BASE_WITHIN].tobytes()):
        url = absolute(found[1].decode("utf-8", "replace"), url) or url
    rows = links[links[:, END] > links[:, START]].tolist()
    k = 0
    for i, (at, end, node) in enumerate(blocks[:, [START, END, NODE]].tolist()):
        shown[i, START] = len(written)
        while k < len(rows) and rows[k][START] < end:
            row = rows[k]
            k += 1
            first = max(at, row[START])
            label = raw[first : min(end, row[END])]
            href = page[row[HREF] - start : row[HREF + 1] - start].tobytes()
            target = absolute(href.decode("utf-8", "replace"), url)
            if target and (name := label.strip()) and not nodes[node, N_PRE]:
                first += label.index(name)
                written += raw[at:first] + b"[" + re.sub(rb"[\[\]]", rb"\\\g<0>", name)
                written += b"](" + target.encode("utf-8", "replace") + b")"
                at = first + len(name)
        written += raw[at:end]
        shown[i, END] = len(written)
    return np.frombuffer(written, np.uint8), shown
