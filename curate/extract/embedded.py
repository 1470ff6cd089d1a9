"""Text that a page carries in its data but does not show: JSON-LD, templates, and hydration data,
from which scripts build a page.

Pages built by scripts have almost no text in their HTML, but often carry the text they will show.
JSON-LD is read by its types (schema.org). From other data, strings that look like text are taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from curate.extract.blocks import MainTexts, main_texts
from curate.extract.markup import FEW, SURER
from curate.extract.metadata import BYLINES, SCRIPTS
from curate.extract.metadata_choice import things_of
from curate.extract.net import KINDS, fitted
from curate.extract.render import PLAIN, Writing
from curate.text.encodings import unescape

# Chosen on WCXB (docs/extraction.md): on pages with more text in HTML, data made the result worse.
ENOUGH = 200  # letters that embedded text must have
MOSTLY = 0.5  # share of the text from HTML that is inside links
MENU = 1000  # letters from which on a list of links may be the page's content
LITTLE = 0.2  # share of the text from HTML that may also be in the data that replace it
LONGER = 2  # a stated body this many times as long replaces a text not made of links
MAX_DATA = 2 << 20  # characters of a script or attribute; longer ones are not parsed
MAX_STRINGS = 2000  # strings used per page

# Attributes may not contain "<": a search ends at the next tag, so time is linear in the page.
_TAG = re.compile(r"<(/?)(script|template|noframes)\b([^<>]{0,2000})>", re.IGNORECASE)
_STATE = re.compile(
    r"\b(?:__NUXT__|__INITIAL_STATE__|__PRELOADED_STATE__|__APOLLO_STATE__)\W{0,9}="
)
_PRELOADED = re.compile(r"""data-preloaded=(?:"([^"]*)"|'([^']*)')""")
_IS_HTML = re.compile(
    r"</?(?:p|br|div|li|ul|ol|h[1-6]|span|a|b|i|em|strong|pre|blockquote)\b[^<>]*>"
)
_SENTENCE = re.compile(r"[.!?…:](?:\s|$)|[。！？؟।]")
_MARKS = re.compile(r"[{}<>=_;|\\/\[\]]")
# Keys of data about the site rather than the page.
_OF_SITE = re.compile(
    r"i18n|translation|locale|messages|config|settings|cookie|consent|seo|meta|menu|navigation|footer",
    re.IGNORECASE,
)
_OF_PAGE = re.compile(r"Article|Posting|Comment|Product|Question|Answer")  # types of schema.org
_TITLES, _BODIES = ("headline", "name"), ("articleBody", "text", "description")


def embedded_text(page: str, writing: Writing = PLAIN) -> tuple[str, str] | None:
    """Return the text that a page carries in its data, as (text, source: json-ld, hydration or
    template), or None if there is too little text."""
    stated: list[str] = []
    templates: list[str] = []
    data: list[str] = []
    for name, attributes, inside in _elements(page):
        if name in ("template", "noframes"):
            if "shadowroot" not in attributes:  # a shadow root is text of the page
                templates.append(inside)
        elif "ld+json" in attributes:
            stated += _statements(_parsed(inside))
        elif "json" in attributes:
            data += _strings(_parsed(inside))
        elif state := _STATE.search(inside):
            data += _strings(_parsed(inside[state.end() :], alone=False))
    if preloaded := _PRELOADED.search(page):
        data += _strings(_parsed(unescape(preloaded[1] or preloaded[2] or "")))
    best = ("", "")
    for source, pieces in (("json-ld", stated), ("hydration", data), ("template", templates)):
        pieces = list(dict.fromkeys(pieces))[:MAX_STRINGS]
        text = "\n\n".join(t for t in _texts(pieces, writing, source == "template") if t)
        if len(text) >= max(ENOUGH, SURER * len(best[0])):
            best = text, source
    return best if best[0] else None


def better_text(
    page: str, text: str, found: MainTexts, row: int, writing: Writing = PLAIN
) -> tuple[str, str] | None:
    """Return (text, source) as `embedded_text` does, or None if `text` is likelier the main text.

    `text` is what extraction from HTML gave. `found` has all results of that extraction, and `row`
    is the page's row in `found`. The embedded text must be longer than `text`. It is returned if
    `text` has fewer than FEW characters. It is also returned if at most the share LITTLE of `text`
    is repeated in the embedded text and one of these holds:

    - More than the share MOSTLY of `text` is links. This does not count for a page that is a list
      if `text` has MENU or more characters.
    - JSON-LD states a body at least LONGER times as long as `text`.
    """
    few = len(text) < FEW
    is_list = KINDS[found.kinds[row]] in ("collection", "listing") and len(text) >= MENU
    links = found.linked[row] > MOSTLY and not is_list
    scripts = found.meta[row, SCRIPTS:BYLINES]
    longest = (scripts[:, 2] - scripts[:, 1]).max()
    stated = longest >= LONGER * len(text) and '"articleBody"' in page
    data = embedded_text(page, writing) if few or links or stated else None
    if data is None or len(data[0]) <= len(text):
        return None
    if few:
        return data
    if not links and (data[1] != "json-ld" or len(data[0]) < LONGER * len(text)):
        return None
    body = " ".join(data[0].split())
    lines = [" ".join(line.split()).removeprefix("- ") for line in text.splitlines()]
    return data if sum(len(x) for x in lines if x in body) <= LITTLE * len(text) else None


def _elements(page: str) -> Iterator[tuple[str, str, str]]:
    name, attributes, start = "", "", 0
    for tag in _TAG.finditer(page):
        if not tag[1] and not name:
            name, attributes, start = tag[2].lower(), tag[3].lower(), tag.end()
        elif tag[1] and tag[2].lower() == name:
            yield name, attributes, page[start : tag.start()]
            name = ""


def _parsed(data: str, alone: bool = True) -> Any:
    if len(data) > MAX_DATA:
        return None
    decoder = json.JSONDecoder(strict=False)
    try:
        return decoder.decode(data) if alone else decoder.raw_decode(data.lstrip())[0]
    except (ValueError, RecursionError):
        return None


def _first(value: dict[str, Any], keys: tuple[str, ...]) -> str:
    return next((v for k in keys if isinstance(v := value.get(k), str) and v.strip()), "")


def _statements(value: Any) -> Iterator[str]:
    for thing in things_of(value):
        kind = thing.get("@type")
        kinds = kind if isinstance(kind, list) else [kind]
        if any(isinstance(k, str) and _OF_PAGE.search(k) for k in kinds):
            body = _first(thing, _BODIES)
            if body or "Question" in kinds:
                yield _first(thing, _TITLES)
                yield body


def _strings(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += reversed(value)
        elif isinstance(value, dict):
            stack += reversed([v for k, v in value.items() if not _OF_SITE.search(k)])
        elif isinstance(value, str) and len(value) >= 40:
            if value[0] in "{[":
                stack.append(_parsed(value))
            elif _IS_HTML.search(value) or _is_prose(value):
                yield value


def _is_prose(text: str) -> bool:
    few_marks = len(_MARKS.findall(text)) * 50 <= len(text)
    return few_marks and _SENTENCE.search(text) is not None and " " in text[:40] + text[-40:]


@lru_cache(maxsize=1)
def _keep_all() -> Any:
    net = fitted()
    return net._replace(out=np.zeros_like(net.out), out_bias=np.full(1, 30, np.float32))


def _texts(pieces: list[str], writing: Writing, choose: bool) -> list[str]:
    # An escape in JSON may be half a surrogate pair, which Arrow cannot store.
    pieces = [p.encode("utf-8", "replace").decode("utf-8").replace("\0", "") for p in pieces]
    pages = [p if choose or _IS_HTML.search(p) else None for p in pieces]
    net = None if choose else _keep_all()
    texts = main_texts(pa.array(pages, pa.large_string()), writing, net).text.to_pylist()
    return [
        unescape(piece).strip() if page is None else text
        for piece, page, text in zip(pieces, pages, texts, strict=True)
    ]
