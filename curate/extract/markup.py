"""Rewrite XHTML and declared shadow roots so that an HTML tokenizer reads them correctly."""

from __future__ import annotations

import html
import re

FEW = 300  # a page with fewer letters of text counts as nearly empty
SURER = 3  # a less sure text must be this many times as long to replace a surer one

# No tag may contain "<": a search ends at the next tag, so time is linear in the page.
_MARKUP = re.compile(
    r"<!--|<!\[CDATA\[|<\?|<!DOCTYPE\b[^<>\[]*\[|"
    r"<(/?)([A-Za-z][^\s/<>]*)(?=[\s/>])([^<>\"']*(?:(?:\"[^<\"]*\"|'[^<']*')[^<>\"']*)*)>"
)
_ENDS = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>"}
_UNQUOTED = re.compile(r"=[^\s\"'<>=]+/\Z")  # an unquoted value that ends with "/"
_EMPTY = re.compile(
    r"<(?:script|style|title|textarea|iframe|no(?:script|frames|embed)|svg|math|select|template"
    r"|button|object|audio|video|canvas|[apb]|div|span|li)\b(?:[^<>]*[\s\"'])?/>",
    re.IGNORECASE,
)
_SHADOW_ROOT = re.compile(
    r"<template\b(?=[^<>]*>)[^<>]*\bshadowroot(?:mode)?\s*=\s*[\"']?(?:open|closed)\b[^<>]*>"
)


def from_xhtml(page: str) -> str:
    """Return XHTML in HTML's syntax: `<x/>` gets an end tag unless HTML has none, CDATA becomes
    text, comments and processing instructions are removed. The page need not be well-formed."""
    from curate.extract.tags import VOID

    parts: list[str] = []
    at, raw = 0, ""  # raw: the open script or style
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
    """Return the page as HTML (`from_xhtml`) if it has empty-element tags that an HTML parser would
    misread, else None. After `<script/>`, for example, all text would be part of the script."""
    return from_xhtml(page) if _EMPTY.search(page) else None


def with_shadow_roots(page: str) -> str:
    """Return the page with declared shadow roots (HTML, 4.12.3) as plain elements in place."""
    return _SHADOW_ROOT.sub("<shadow-root>", page)
