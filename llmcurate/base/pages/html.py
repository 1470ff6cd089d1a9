"""HTML pages and their templates.

Templates escape every value that is not Markup and make its control characters visible. Jinja2 is
loaded with the first page.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, unquote_plus

from llmcurate.base.disk import units
from llmcurate.base.disk.files import cache_folder, text_digest
from llmcurate.base.terminal import visible

if TYPE_CHECKING:
    from markupsafe import Markup


MOST_CHARS = 400  # characters of an excerpt
MOST_NAME = 160  # characters of an id, a URL, a file name
LONG_NAME = 20  # characters; shorter names are not broken
MOST_ADDRESS = 400  # characters of an id in an address
# Links to a document or a rule, as `document`, a template or `linked` writes them.
_LINKS = re.compile(r'<a (?:href="[^"]*" )?data-(id|rule)="([^"]*)">')
_BETWEEN = re.compile(r"[._/:=-]+(?=\w)")
# The elements that `quote` and `detail` write.
_QUOTATIONS = re.compile(r"<pre dir=auto>.*?</pre>|<span class=detail>.*?</span>", re.DOTALL)


def plain(text: object, most: int = MOST_CHARS) -> str:
    """Return at most `most` characters from a text's beginning, with control characters visible."""
    text = str(text)
    return visible(text[:most]) + ("\u2026" if len(text) > most else "")


def _element(start: str, text: str, end: str) -> Markup:
    from markupsafe import Markup, escape

    return Markup(start) + escape(text) + Markup(end)


def name(text: object) -> Markup:
    """Return an id, URL, file or column name as HTML; a long name may break after `._/:=-`."""
    return _element("<bdi class=name>", breakable(plain(text, MOST_NAME)), "</bdi>")


def document(id: object) -> Markup:
    """Return a document's id as an HTML link. The function `linked` adds the address later."""
    from markupsafe import Markup, escape

    shown = breakable(plain(id, MOST_NAME))
    address = quote_plus(str(id), errors="replace")
    if len(address) > MOST_ADDRESS:
        return name(id)
    return Markup('<bdi class=name><a data-id="{}">{}</a></bdi>').format(escape(address), shown)


def linked(page: str, address: Callable[[str], str]) -> str:
    """Return the page with addresses in its links to documents and rules. `address(id)` returns a
    document's address, and `address("")` the address of the list of all documents. A rule's link
    leads to this list with `?rule=NAME`. If `address` returns "", the link is unchanged."""

    def link(match: re.Match[str]) -> str:
        kind, value = match.groups()
        to = address(unquote_plus(value) if kind == "id" else "")
        if not to:
            return match[0]
        query = f"?rule={value}" if kind == "rule" else ""
        return f'<a href="{escape(to)}{query}" data-{kind}="{value}">'

    return _LINKS.sub(link, page)


def breakable(text: str) -> Markup:
    """Return the text escaped for HTML; a browser may break a long text after punctuation."""
    from markupsafe import Markup, escape

    if len(text) < LONG_NAME:
        return escape(text)
    # No character of the pattern is part of an entity.
    return Markup(_BETWEEN.sub(r"\g<0><wbr>", str(escape(text))))


def quote(text: str, most: int = MOST_CHARS) -> Markup:
    """Return a passage of a document as HTML."""
    return _element("<pre dir=auto>", plain(text, most), "</pre>")


def detail(text: str, most: int = MOST_NAME) -> Markup:
    """Return the text that a rule matched in a document, as HTML within a line."""
    return _element("<span class=detail>", plain(text, most), "</span>")


def without_texts(page: str) -> str:
    """Remove the quotations of documents from a page. A quotation ends at the first end tag,
    because tags inside it are escaped."""
    return _QUOTATIONS.sub(
        "<span class=note>(removed: near a text that must be forgotten)</span>", page
    )


def percent(part: float | None, whole: float = 1) -> str:
    """Format part / whole with a non-breaking space: 0 % if `whole` is 0, `-` if `part` is None."""
    share = part if part is None else part / whole if whole else 0.0
    return units.format_percent(share).replace(" ", "\u00a0")


WORDS = 160  # of each text; the time to compare grows with the square of this number
BEFORE = 15  # equal words shown before the first difference
_WORDS = re.compile(r"\S+\s*")


@dataclass(frozen=True)
class Diff:
    """A comparison of two texts. It begins a few words before their first difference and covers at
    most WORDS words of each text. `runs` has, in text order, (words of the first text, words of the
    second text, True if they are equal). A word includes the white space after it."""

    runs: list[tuple[list[str], list[str], bool]]
    begun: bool  # True if words before the first run were left out
    more: tuple[bool, bool]  # for each text, True if it continues after the last run
    equal: bool  # True if the texts differ at most in white space


def compare(first: str, second: str) -> Diff:
    """Return the difference of two texts. At most WORDS words of each are compared."""
    a, b = (_WORDS.findall(t) for t in (first, second))
    same = 0
    for x, y in zip(a, b, strict=False):
        if x.split() != y.split():
            break
        same += 1
    equal = same == len(a) == len(b)
    start = 0 if equal else max(0, same - BEFORE)
    more = (len(a) > start + WORDS, len(b) > start + WORDS)
    a, b = a[start : start + WORDS], b[start : start + WORDS]
    bare = [[w.strip() for w in words] for words in (a, b)]
    matcher = SequenceMatcher(None, bare[0], bare[1], autojunk=False)
    runs = [(a[i:j], b[k:m], tag == "equal") for tag, i, j, k, m in matcher.get_opcodes()]
    return Diff(runs, start > 0, more, equal)


# Templates.

FOLDER = Path(__file__).parent / "templates"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(template: str, **values: Any) -> str:
    """Return the page made from a template in `templates/`, ready to be encoded as UTF-8. Each
    non-empty section adds (anchor, title) to the variable `contents`, for the navigation."""
    page: str = (
        _environment().get_template(template).render({"contents": [], "policy": POLICY, **values})
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def own_script(name: str, forms: bool = False) -> tuple[Markup, str]:
    """Return (script, policy): a script of `templates/`, and a Content-Security-Policy that lets a
    page run only this script. `forms` permits the page to send forms to its own origin."""
    from markupsafe import Markup

    script = source(name)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = POLICY.replace("form-action 'none'", "form-action 'self'") if forms else POLICY
    return Markup(script), policy.replace("base-uri", f"script-src 'sha256-{digest}'; base-uri")


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    from llmcurate.base.pages import charts
    from llmcurate.base.pages.side_by_side import side_by_side

    def finalize(value: Any) -> Any:
        if value is None:
            return ""
        if isinstance(value, str) and not isinstance(value, Markup):
            return visible(value)
        return value

    class Cache(FileSystemBytecodeCache):
        """A cache of compiled templates on disk. A template's key covers its text and this module's
        source, which sets the options. Checkouts can share the folder, which may be deleted."""

        def get_cache_key(self, name: str, filename: Any = None) -> str:
            return text_digest(f"{name}\0{source(name)}\0{options}", "xxh3-128")

        def dump_bytecode(self, bucket: Any) -> None:
            with suppress(OSError):  # if the folder cannot be written, templates are compiled again
                super().dump_bytecode(bucket)

    options = Path(__file__).read_text(encoding="utf-8")
    folder = _compiled_folder()
    environment = Environment(
        bytecode_cache=Cache(str(folder)) if folder is not None else None,
        loader=FunctionLoader(source),
        autoescape=True,
        optimized=False,  # constant folding takes more time than it saves
        auto_reload=False,
        trim_blocks=True,
        undefined=StrictUndefined,
        finalize=finalize,
    )
    environment.filters |= {
        "cut": plain,
        "name": name,
        "document": document,
        "quote": quote,
        "detail": detail,
        "count": units.format_count,
        "counted": units.counted,
        "number": units.format_measure,
        "bytes": units.format_bytes,
        "scaled": lambda number: units.format_scaled(number).strip(),
        "power": units.format_power,
        "short": units.format_short,
        "zip": lambda rows, others: list(zip(rows, others, strict=False)),
    }
    environment.globals |= {
        "charts": charts,
        "percent": percent,
        "side_by_side": side_by_side,
    }
    return environment


def _compiled_folder() -> Path | None:
    try:
        folder = cache_folder() / "templates"
        folder.mkdir(parents=True, exist_ok=True)
        is_own = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
        return folder if is_own else None
    except (OSError, RuntimeError):
        return None


def source(template: str) -> str:
    """Return a template's text without indentation, so that pages are smaller."""
    text = (FOLDER / template).read_text(encoding="utf-8")
    return "\n".join(line.lstrip() for line in text.splitlines())
