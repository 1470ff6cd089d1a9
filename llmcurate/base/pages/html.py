"""HTML pages: their templates, and texts for them, in which every text is escaped.

Values that are not Markup are escaped, and control characters in them made visible, wherever a
template prints them: text from documents, names and settings alike. Jinja2 loads with the first
page.
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


MOST_CHARS = 400  # of an excerpt
MOST_NAME = 160  # of an id, a URL, a file name
LONG_NAME = 20  # characters; a shorter one stays in one piece
MOST_ADDRESS = 400  # characters of an id in an address
# What `document` or a template writes, or `linked` has led elsewhere: of a document, or of a rule.
_PLACES = re.compile(r'<a (?:href="[^"]*" )?data-(id|rule)="([^"]*)">')
_BETWEEN = re.compile(r"[._/:=-]+(?=\w)")
# Quotations of documents stand in these; see `quote` and `detail`.
_QUOTATIONS = re.compile(r"<pre dir=auto>.*?</pre>|<span class=detail>.*?</span>", re.DOTALL)


def plain(text: object, most: int = MOST_CHARS) -> str:
    """The beginning of a text, at most `most` characters, made visible."""
    text = str(text)
    return visible(text[:most]) + ("\u2026" if len(text) > most else "")


def _element(start: str, text: str, end: str) -> Markup:
    from markupsafe import Markup, escape

    return Markup(start) + escape(text) + Markup(end)


def name(text: object) -> Markup:
    """An id, a URL, a file or column name; a long one breaks behind its dots, lines and slashes."""
    return _element("<bdi class=name>", breakable(plain(text, MOST_NAME)), "</bdi>")


def document(id: object) -> Markup:
    """A document's id, as a link that leads nowhere until `linked` gives it an address."""
    from markupsafe import Markup, escape

    shown = breakable(plain(id, MOST_NAME))
    address = quote_plus(str(id), errors="replace")
    if len(address) > MOST_ADDRESS:
        return name(id)
    return Markup('<bdi class=name><a data-id="{}">{}</a></bdi>').format(escape(address), shown)


def ids_of(page: str) -> list[str]:
    """The documents whose ids stand in a page, each once."""
    places = (match.groups() for match in _PLACES.finditer(page))
    return list(dict.fromkeys(unquote_plus(value) for kind, value in places if kind == "id"))


def linked(page: str, address: Callable[[str], str]) -> str:
    """The page with its places of documents and rules led to an address. address: of an id, of the
    list of all documents for an empty one, to which a rule is a query; empty: that place stays as
    it is."""

    def link(match: re.Match[str]) -> str:
        kind, value = match.groups()
        to = address(unquote_plus(value) if kind == "id" else "")
        if not to:
            return match[0]
        query = f"?rule={value}" if kind == "rule" else ""
        return f'<a href="{escape(to)}{query}" data-{kind}="{value}">'

    return _PLACES.sub(link, page)


def breakable(text: str) -> Markup:
    """The text, escaped; a long one with places where a line may end between its parts."""
    from markupsafe import Markup, escape

    if len(text) < LONG_NAME:
        return escape(text)
    # No character of the pattern is part of an entity.
    return Markup(_BETWEEN.sub(r"\g<0><wbr>", str(escape(text))))


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
    return units.format_percent(share).replace(" ", "\u00a0")


WORDS = 160  # of each text, compared in a time that grows with the square
BEFORE = 15  # equal words shown before the first difference
_WORDS = re.compile(r"\S+\s*")


@dataclass(frozen=True)
class Diff:
    """Two texts from a few words before their first difference on.

    runs: (words of the first, words of the second, whether they are equal), in order; words keep
    the white space behind them. begun: words before the first run were left out; more: whether the
    first, the second text goes on; equal: the texts are the same, white space apart.
    """

    runs: list[tuple[list[str], list[str], bool]]
    begun: bool
    more: tuple[bool, bool]
    equal: bool


def compare(first: str, second: str) -> Diff:
    """The difference of two texts; at most WORDS words of each are looked at."""
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
    """The page that a template of `templates/` makes of the values, ready to be written as UTF-8.

    `contents` collects (anchor, title) of the sections that hold anything, for the navigation.
    """
    page: str = (
        _environment().get_template(template).render({"contents": [], "policy": POLICY, **values})
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def own_script(name: str, forms: bool = False) -> tuple[Markup, str]:
    """(a script of `templates/`, the policy of a page that runs this one and nothing else). forms:
    whether its forms may be sent to where it came from."""
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
        """Compiled templates by their content, and this module's, whose options go into them: what
        one checkout compiled stays beside what others did. It may be deleted at any time."""

        def get_cache_key(self, name: str, filename: Any = None) -> str:
            return text_digest(f"{name}\0{source(name)}\0{options}", "xxh3-128")

        def dump_bytecode(self, bucket: Any) -> None:
            with suppress(OSError):  # a folder that cannot be written costs time only
                super().dump_bytecode(bucket)

    options = Path(__file__).read_text(encoding="utf-8")
    folder = _compiled_folder()
    environment = Environment(
        bytecode_cache=Cache(str(folder)) if folder is not None else None,
        loader=FunctionLoader(source),
        autoescape=True,
        optimized=False,  # folding constants costs more than it saves a page
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
    """`templates` in the folder for caches; None where it cannot be made, or belongs to somebody
    else. Compiling costs 0.2 s of every process that writes a page."""
    try:
        folder = cache_folder() / "templates"
        folder.mkdir(parents=True, exist_ok=True)
        is_own = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
        return folder if is_own else None
    except (OSError, RuntimeError):
        return None


def source(template: str) -> str:
    """A template's text, its lines without indentation, so that pages do not carry it."""
    text = (FOLDER / template).read_text(encoding="utf-8")
    return "\n".join(line.lstrip() for line in text.splitlines())
