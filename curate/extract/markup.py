"""Pages as HTML's tokenizer should see them: XHTML, and shadow roots that a page declares."""

from __future__ import annotations

import html
import re

FEW = 300  # letters of a page's text below which it counts as nearly empty
SURER = 3  # how many times longer a text must be that is less sure

# None holds "<" in a tag, so that a search ends at the next one: time is linear in the page.
_MARKUP = re.compile(
    r"<!--|<!\[CDATA\[|<\?|<!DOCTYPE\b[^<>\[]*\[|"
    r"<(/?)([A-Za-z][^\s/<>]*)(?=[\s/>])([^<>\"']*(?:(?:\"[^<\"]*\"|'[^<']*')[^<>\"']*)*)>"
)
_ENDS = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>"}
_UNQUOTED = re.compile(r"=[^\s\"'<>=]+/\Z")  # whose value ends with the "/"
_EMPTY = re.compile(
    r"<(?:script|style|title|textarea|iframe|no(?:script|frames|embed)|svg|math|select|template"
    r"|button|object|audio|video|canvas|[apb]|div|span|li)\b(?:[^<>]*[\s\"'])?/>",
    re.IGNORECASE,
)
_SHADOW_ROOT = re.compile(
    r"<template\b(?=[^<>]*>)[^<>]*\bshadowroot(?:mode)?\s*=\s*[\"']?(?:open|closed)\b[^<>]*>"
)


def from_xhtml(page: str) -> str:
    """XHTML in HTML's syntax: each `<x/>` gets its end tag, or none where HTML has none; CDATA is
    text; comments and processing instructions are left out.

    It need not be well-formed. Elements keep their names; entities that the page declares are not
    replaced.
    """
    from curate.extract.tags import VOID

    parts: list[str] = []
    at, raw = 0, ""  # raw: the script or style that is open
    while tag := _MARKUP.search(page, at):
        parts.append(page[at : tag.start()])
        at = tag.end()
        if tag[2] is None:
            begin, close = tag[0], _ENDS.get(tag[0], "]>")
            end = page.find(close, at)
            if end < 0:
                return "".join([*parts, page[tag.start() :]])
            if begin == "<![CDATA[":
                text = page[at:end]
                # "<\/" is the same in scripts and JSON.
                parts.append(text.replace("</", "<\\/") if raw else html.escape(text, quote=False))
            at = end + len(close)
            continue
        name, attributes = tag[2].lower(), tag[3]
        empty = attributes.endswith("/") and not _UNQUOTED.search(attributes)
        if raw:
            raw = "" if tag[1] and name == raw else raw
        elif name in VOID:
            if tag[1]:
                continue
        elif empty and not tag[1]:
            parts.append(f"<{tag[2]}{attributes[:-1]}></{tag[2]}>")
            continue
        elif name in ("script", "style") and not tag[1]:
            raw = name
        parts.append(tag[0])
    return "".join([*parts, page[at:]])


def lost_xhtml(page: str) -> str | None:
    """A page of HTML with little text as `from_xhtml` has it, where it is written as XHTML: what
    stands behind `<script/>` belongs to the script in HTML, and is text in XML."""
    return from_xhtml(page) if _EMPTY.search(page) else None


def with_shadow_roots(page: str) -> str:
    """The page with the shadow roots that it declares (HTML, 4.12.3) in their place, before what
    their host holds, whatever slots say; `scan` sees them by itself."""
    return _SHADOW_ROOT.sub("<shadow-root>", page)
