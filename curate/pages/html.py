"""Pieces of HTML. Every text from a document, a name or a setting goes through `shown`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

MOST_CHARS = 400  # of an excerpt
MOST_NAME = 160  # of an id, a URL, a file name
# Marks of direction can make a page read otherwise than it is written (Unicode TR 36).
# What pages quote of documents stands in these; see `quote` and `said`.
_TEXTS = re.compile(r"<pre dir=auto>.*?</pre>|<span class=detail>.*?</span>", re.DOTALL)
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


def plain(text: str, most: int = MOST_CHARS) -> str:
    """The beginning of a text with control characters and marks of direction made visible."""
    cut = text[:most]
    # Most texts hold nothing to mend, which a whole-string test finds at once.
    if not (cut.isascii() and cut.isprintable()):
        cut = "".join(map(_visible, cut))
    return cut + ("\u2026" if len(text) > most else "")


def shown(text: object, most: int = MOST_CHARS) -> str:
    """Any text as HTML that shows it as text."""
    return escape(plain(str(text), most))


def name(text: object) -> str:
    """An id, a URL, a file or column name as HTML; long ones break anywhere."""
    return f"<bdi class=name>{shown(text, MOST_NAME)}</bdi>"


def quote(text: str, most: int = MOST_CHARS) -> str:
    """A piece of a document."""
    return f"<pre dir=auto>{shown(text, most)}</pre>"


def said(text: str, most: int) -> str:
    """What a rule found in a document, within a line."""
    return f"<span class=detail>{shown(text, most)}</span>"


def without_texts(page: str) -> str:
    """A page of ours without what it quotes of documents. A text is escaped: no mark of it ends
    what it stands in."""
    return _TEXTS.sub("<span class=note>(a text that is to be forgotten stood near)</span>", page)


def count(number: float) -> str:
    """A whole number with thousands separated."""
    return f"{number:,.0f}"


def percent(part: float, whole: float) -> str:
    """A share for people: `5.3 %`; nothing of nothing is 0 %."""
    value = 100 * part / whole if whole else 0.0
    if value and value < 0.1:
        return "&lt; 0.1&nbsp;%"
    digits = 0 if value >= 99.95 or value == 0 else 1
    return f"{value:.{digits}f}&nbsp;%"


def number(value: float | None) -> str:
    """A measured value, at most four digits behind the point."""
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}"


def bar(part: float, whole: float, label: str = "", gone: float = 0) -> str:
    """A bar that fills part / whole of its place, and behind it gone / whole in another colour."""
    widths = [100 * min(1.0, p / whole) if whole else 0.0 for p in (part, gone)]
    said = f' role=img aria-label="{escape(label)}"' if label else " aria-hidden=true"
    inner = "".join(f'<i style="width:{w:.2f}%"></i>' for w in widths[: 2 if gone else 1])
    return f"<div class=bar{said}>{inner}</div>"


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = (), kind: str = ""
) -> str:
    """A table that scrolls by itself where it is too wide. numbers: columns set to the right."""
    right = set(numbers)

    def line(cells: Sequence[str], tag: str) -> str:
        inner = "".join(
            f"<{tag}{' class=n' if i in right else ''}>{c}</{tag}>" for i, c in enumerate(cells)
        )
        return f"<tr>{inner}</tr>"

    body = "".join(line(r, "td") for r in rows)
    named = f" class={kind}" if kind else ""
    return (
        f"<div class=wide tabindex=0><table{named}><thead>{line(head, 'th')}</thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def section(anchor: str, title: str, *parts: str) -> tuple[str, str, str]:
    """(anchor, title, HTML) of a chapter; an empty one is left out of the page."""
    return anchor, title, "".join(parts)


def lead(text: str) -> str:
    """What a chapter shows, in a sentence or two; text is HTML."""
    return f"<p class=lead>{text}</p>"


def details(summary: str, inner: str, opened: bool = False) -> str:
    """What a reader may open; both are HTML."""
    return f"<details{' open' if opened else ''}><summary>{summary}</summary>{inner}</details>"
