"""Texts and numbers for pages: control characters made visible, markup escaped."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from curate.disk.units import format_percent

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_CHARS = 400  # of an excerpt
MOST_NAME = 160  # of an id, a URL, a file name
# Quotations of documents stand in these; see `quote` and `detail`.
_QUOTATIONS = re.compile(r"<pre dir=auto>.*?</pre>|<span class=detail>.*?</span>", re.DOTALL)
# Marks of direction can make a page read otherwise than it is written (Unicode TR 36).
DIRECTION = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}


def _visible(char: str) -> str:
    code = ord(char)
    if char in "\n\t":
        return char
    if code < 0x20:
        return chr(0x2400 + code)  # control pictures
    if code == 0x7F:
        return "\u2421"
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    if code in DIRECTION or code == 0xFEFF or unicodedata.category(char) in ("Cc", "Zl", "Zp"):
        return f"[U+{code:04X}]"
    return char


def visible(text: str) -> str:
    """The text with control characters and marks of direction made visible."""
    # Most texts hold none, which a whole-string test finds at once.
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def plain(text: object, most: int = MOST_CHARS) -> str:
    """The beginning of a text, at most `most` characters, made visible."""
    text = str(text)
    return visible(text[:most]) + ("\u2026" if len(text) > most else "")


def _element(start: str, text: str, end: str) -> Markup:
    from markupsafe import Markup, escape

    return Markup(start) + escape(text) + Markup(end)


def name(text: object) -> Markup:
    """An id, a URL, a file or column name; long ones break anywhere."""
    return _element("<bdi class=name>", plain(text, MOST_NAME), "</bdi>")


def quote(text: str, most: int = MOST_CHARS) -> Markup:
    """A passage of a document."""
    return _element("<pre dir=auto>", plain(text, most), "</pre>")


def detail(text: str, most: int = MOST_NAME) -> Markup:
    """What a rule matched in a document, within a line."""
    return _element("<span class=detail>", plain(text, most), "</span>")


def without_texts(page: str) -> str:
    """A page without its quotations of documents. These are escaped: no markup in one ends it."""
    return _QUOTATIONS.sub(
        "<span class=note>(a text that is to be forgotten stood near)</span>", page
    )


def percent(part: float | None, whole: float = 1) -> str:
    """A share, with a space that no line breaks at; 0 % of nothing, `-` for None."""
    share = part if part is None else part / whole if whole else 0.0
    return format_percent(share).replace(" ", "\u00a0")
