"""The step `extract`: turns raw pages into text, and the metadata in them into columns.

The extractor `blocks` processes a batch of pages (blocks.py). The other extractors are functions
from HTML to text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from curate.documents.documents import DATE, Documents
from curate.documents.limits import Limit, decide
from curate.extract.markup import FEW, SURER, from_xhtml, lost_xhtml, with_shadow_roots
from curate.formats.mime import is_xml
from curate.steps.contracts import Identity, Step, step
from curate.text.decoding import Undecodable, decode
from llmcurate.base.errors import RunFailed, UsageError

# Control characters U+0080 to U+009F in UTF-8 are windows-1252 characters decoded as Latin-1. HTML
# reads numeric references to them as windows-1252, too.
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
_C1_TEXT = {chr(n).encode(): unescape(f"&#{n};").encode() for n in range(0x80, 0xA0)}


def _has_c1(payload: bytes) -> bool:
    at = payload.find(b"\xc2")  # ten times as fast as a regex search
    while 0 <= at < len(payload) - 1 and payload[at + 1] >= 0xA0:
        at = payload.find(b"\xc2", at + 2)
    return at >= 0


MAX_DEPTH = 512  # where browsers stop nesting too (Blink: kMaximumHTMLParserDOMTreeDepth)
MAX_WORK = 20_000_000  # elements times blocks: about a second of main content at worst


class TooDeep(Exception):
    """A page is nested deeper than the limit. `depth` is the depth of its tree."""

    def __init__(self, depth: int) -> None:
        super().__init__(f"nested {depth} elements deep")
        self.depth = depth


def nesting(html: str) -> int:
    """Return the depth of the page's tree, or 0 if the page is too small for its depth to matter.
    Resiliparse's main mode takes time in proportion to the square of the nesting of `div` and
    `article`, and a page can be built to stall it (benchmarks/hostile_pages.py). Small pages are
    not measured, since walking the tree costs more than extraction."""
    tags = html.count("<")
    if tags * tags <= MAX_WORK:
        return 0
    lower = html.lower()
    if tags * (lower.count("<div") + lower.count("<article")) <= MAX_WORK:
        return 0
    return depth_of(html)


def depth_of(html: str) -> int:
    from resiliparse.parse.html import HTMLTree, traverse_dom

    deepest = 0

    def enter(context: Any) -> None:
        nonlocal deepest
        deepest = max(deepest, context.depth)

    document = HTMLTree.parse(html).document
    if document is not None:
        traverse_dom(document, enter, lambda context: None)
    return deepest


def main_text(html: str) -> str:
    """Return the main text found by resiliparse with DCLM's settings (Li et al. 2024, section 4.2;
    mlfoundations/dclm, tools/commoncrawl/process_common_crawl_w_ray.py): main_content=True and
    resiliparse's defaults, written out so that they cannot change. Raises TooDeep for a page nested
    deeper than MAX_DEPTH."""
    depth = nesting(html)
    if depth > MAX_DEPTH:
        raise TooDeep(depth)
    from resiliparse.extract.html2text import extract_plain_text

    text: str = extract_plain_text(
        html,
        preserve_formatting=True,
        main_content=True,
        list_bullets=True,
        alt_texts=True,
        links=False,
        form_fields=False,
        noscript=False,
        comments=True,
    )
    return text


def full_text(html: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    text: str = extract_plain_text(html, preserve_formatting=True, main_content=False)
    return text


# Extractors of other projects, not installed by default. Both build a tree of the whole page and
# recurse into it, so pages nested deeper than MAX_DEPTH are rejected first.
MODULES = {"trafilatura": "trafilatura", "justext": "justext"}


def need(extractor: str) -> None:
    """Raise RunFailed with the install command if the library of this extractor is missing."""
    module = MODULES.get(extractor)
    if module is not None and find_spec(module) is None:
        raise RunFailed(
            f"extractor {extractor} needs a library: pip install 'llmcurate[extractors]'"
        )


def shallow(html: str) -> None:
    """Raise TooDeep if a page is nested deeper than MAX_DEPTH."""
    depth = depth_of(html) if html.count("<") > MAX_DEPTH else 0
    if depth > MAX_DEPTH:
        raise TooDeep(depth)


def trafilatura(favor: str) -> Callable[[str], str]:
    """Return trafilatura's extractor (Barbaresi 2021) without comments. Its removal of repeated
    passages is off, since it depends on the pages that were extracted before."""
    need("trafilatura")
    import logging

    from trafilatura import extract

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # pages that it cannot read

    def text(html: str) -> str:
        shallow(html)
        extracted = extract(
            html,
            include_comments=False,
            deduplicate=False,
            favor_precision=favor == "precision",
            favor_recall=favor == "recall",
        )
        return extracted or ""

    return text


def stop_words(language: str) -> frozenset[str]:
    """Return jusText's stop words of a language or of `all`. Raises UsageError if it is unknown."""
    need("justext")
    import justext

    languages = sorted(justext.get_stoplists())
    if language == "all":
        return frozenset().union(*(justext.get_stoplist(name) for name in languages))
    if language not in languages:
        names = ", ".join(languages)
        raise UsageError(f"extract: no stop words for {language!r}; known: all, {names}")
    return frozenset(justext.get_stoplist(language))


def justext(language: str) -> Callable[[str], str]:
    """Return a function that extracts the paragraphs that jusText (Pomikálek 2011) keeps."""
    words = stop_words(language)
    import justext as library

    def text(html: str) -> str:
        if not html.strip():
            return ""
        shallow(html)
        # As bytes: lxml refuses a string with an encoding declaration.
        paragraphs = library.justext(html.encode("utf-8"), words, encoding="utf-8")
        return "\n\n".join(p.text for p in paragraphs if not p.is_boilerplate)

    return text


def may_declare(mime: str | None) -> bool:
    """Return True if content of this type may declare its encoding: HTML, XML, unknown types."""
    return mime is None or mime == "text/html" or mime.endswith("xml")


EXTRACTORS: dict[str, Callable[[str], str]] = {"resiliparse": main_text, "text": full_text}


PageKind = Literal[
    "auto", "article", "collection", "documentation", "forum", "listing", "product", "service"
]


@step("extract")
class Extract(Step):
    """Turns HTML into text; rows that already have text pass unchanged."""

    # Versions. 2: list bullets and alternative texts, as in DCLM. 3, 4: blocks chosen by the
    # network. 5: encodings as in browsers; XHTML, shadow roots, control characters, data of pages
    # that are mostly links. 6: weights fitted on news too, words and sections; site names.
    version: ClassVar[int] = 6

    extractor: Literal["blocks", "resiliparse", "trafilatura", "justext", "text"] = "blocks"
    """The extractor: blocks is llmcurate's own; resiliparse has the settings of DCLM (Li et al.
    2024, section 4.2); trafilatura and justext need their libraries; text keeps all visible text of
    a page."""
    output: Literal["text", "markdown"] = "text"
    """The form that blocks writes: plain text, or Markdown with headings, lists, tables, quotes and
    code."""
    links: Literal["drop", "keep"] = "drop"
    """Links in Markdown: dropped, or kept as [text](absolute URL)."""
    comments: Literal["auto", "keep", "drop", "mark"] = "auto"
    """Readers' comments on articles: as the network chooses (auto), after the text (keep), left out
    (drop), or after a heading Comments (mark)."""
    tables: Literal["keep", "drop", "markdown"] = "keep"
    """Tables of data: kept, dropped, or written as Markdown even in plain text."""
    kind: PageKind = "auto"
    """The kind of all pages, if known; auto detects it per page."""
    embedded: bool = True
    """Whether blocks reads the text of a page with almost no text, or mostly links, from its data
    (JSON-LD, data for scripts, templates). The column extract.source names the source."""
    favor: Literal["balanced", "precision", "recall"] = "balanced"
    """Trafilatura's choice if in doubt: precision drops a passage, recall keeps it, balanced is its
    default."""
    stop_words: str = "all"
    """The language of justext's stop words by its English name, such as English, or all for every
    language."""
    max_html_bytes: int = Field(5 << 20, ge=1)
    """The most bytes of a page; larger ones are dropped, since a parsed page takes many times its
    size in memory."""
    max_replaced: int | None = Field(None, ge=0)
    """The most replacement characters (U+FFFD) for invalid bytes; pages with more are dropped."""

    def identity(self) -> Identity:
        need(self.extractor)
        if self.extractor == "justext":
            stop_words(self.stop_words)
        identity = super().identity()
        identity.contents["detector"] = version("chardetng_py")
        return identity

    def apply(self, docs: Documents) -> Documents:
        if "payload" not in docs.table.column_names:
            return docs.drop(docs.text.is_null().to_numpy(zero_copy_only=False), "no_payload")
        batch = Batch(docs, self.max_html_bytes)
        if self.extractor == "blocks":
            batch.by_blocks(self)
        else:
            batch.one_by_one(self._function())
        return decide(batch.finish(), self.limits())

    def limits(self) -> list[Limit]:
        return [Limit("many_replaced", "replaced", "max_replaced", self.max_replaced, above=True)]

    def _function(self) -> Callable[[str], str]:
        if self.extractor == "trafilatura":
            return trafilatura(self.favor)
        if self.extractor == "justext":
            return justext(self.stop_words)
        return EXTRACTORS[self.extractor]


class Batch:
    """The rows of a batch during extraction: each row's text, or the reason why it has none."""

    def __init__(self, docs: Documents, max_html_bytes: int) -> None:
        self.docs = docs
        rows = len(docs)
        self.limit = max_html_bytes
        self.texts: list[str | None] = []
        self.pages: list[str | None] = [None] * rows  # HTML to extract
        self.encodings: list[str | None] = [None] * rows
        self.replaced = np.zeros(rows, np.int64)
        self.undecodable: dict[str, list[int]] = {}  # label of an encoding -> rows
        self.details: list[str | None] = [None] * rows
        self.size = np.zeros(rows, np.int64)
        self.depth = np.zeros(rows, np.int64)
        self.tags = np.zeros(rows, np.int64)
        self.columns: dict[str, pa.Array] = {}
        names = ("text", "payload", "mime", "charset", "url")
        for row, values in enumerate(zip(*(docs.table[n] for n in names), strict=True)):
            ready, payload, mime, charset, url = (v.as_py() for v in values)
            self.texts.append(ready)
            if ready is not None or payload is None:
                continue
            self.size[row] = len(payload)
            if len(payload) > max_html_bytes:
                continue
            try:
                decoded = decode(payload, charset, html=may_declare(mime), url=url)
            except Undecodable as error:
                self.undecodable.setdefault(str(error), []).append(row)
                continue
            page, self.encodings[row], self.replaced[row] = decoded
            if decoded.encoding == "utf-8" and _has_c1(payload):
                page = _C1.sub(lambda c1: _C1_TEXT[c1[0]], payload).decode("utf-8", "replace")
            xml = mime is not None and is_xml(mime) and "<html" in page[:4096].lower()
            if mime is not None and mime.startswith("text/") and not (xml or mime == "text/html"):
                self.texts[row] = page
            else:
                self.pages[row] = from_xhtml(page) if xml else page

    def one_by_one(self, extract: Callable[[str], str]) -> Batch:
        for row, page in enumerate(self.pages):
            if page is None:
                continue
            try:
                page = with_shadow_roots(page)
                text = extract(page)
                if len(text) < FEW and (other := lost_xhtml(page)):
                    again = extract(other)
                    text = again if len(again) >= SURER * len(text) else text
                self.texts[row] = text
            except MemoryError:
                raise
            except TooDeep as error:
                self.depth[row] = error.depth
            except Exception as error:  # a page that cannot be parsed does not fail the run
                self.details[row] = f"{type(error).__name__}: {error}"[:200]
        return self

    def by_blocks(self, step: Extract) -> Batch:
        """Extract texts with the extractor `blocks`; note each page's source, metadata and kind."""
        from curate.extract import metadata
        from curate.extract.blocks import main_texts
        from curate.extract.embedded import better_text
        from curate.extract.net import KINDS
        from curate.extract.render import Writing
        from curate.extract.tags import MAX_ELEMENTS

        writing = Writing(step.output, step.comments, step.tables, step.links, step.kind)
        urls = self.docs.table["url"].to_pylist()
        result = main_texts(pa.array(self.pages, pa.large_string()), writing, urls=urls)
        texts = result.text.to_pylist()
        found = [(result, row) for row in range(len(texts))]
        few = [(r, page) for r, page in enumerate(self.pages) if page and len(texts[r]) < FEW]
        others = {row: other for row, page in few if (other := lost_xhtml(page))}
        html = pa.array(others.values(), pa.large_string())
        again = main_texts(html, writing, urls=[urls[row] for row in others])
        for k, (row, text) in enumerate(zip(others, again.text.to_pylist(), strict=True)):
            if text and len(text) >= SURER * len(texts[row]):
                found[row], texts[row], self.pages[row] = (again, k), text, others[row]
                result.kinds[row], result.chances[row] = again.kinds[k], again.chances[k]
        rows: list[tuple[Any, ...]] = []
        for row, page in enumerate(self.pages):
            if page is None:
                rows.append((None,) * 6)
                continue
            where, k = found[row]
            many = where.tags[k] > MAX_ELEMENTS
            self.tags[row] = where.tags[k] if many else 0
            self.texts[row], source = (None, None) if many else (texts[row], "page")
            if (
                step.embedded
                and not many
                and (data := better_text(page, texts[row], where, k, writing))
            ):
                self.texts[row], source = data
            title, day, by, lang, site = where.stated(k, urls[row])
            date, author = metadata.published(day), metadata.author(by)
            rows.append((title, date, author, metadata.language_tag(lang), site, source))
        for i, name in enumerate(("title", "published", "author", "lang_hint", "site", "source")):
            kind = DATE if name == "published" else pa.string()
            self.columns[name] = pa.array([values[i] for values in rows], kind)
        unknown = result.kinds < 0
        kinds = pa.array(KINDS).take(pa.array(result.kinds, pa.int64(), mask=unknown))
        self.columns["kind"] = kinds
        self.columns["kind_probability"] = pa.array(result.chances, pa.float32(), mask=unknown)
        return self

    def finish(self) -> Documents:
        failed = np.array([t is None for t in self.texts], np.bool_)
        large, many = self.size > self.limit, self.tags > 0
        docs = self.docs.replace(pa.array([t or "" for t in self.texts], pa.large_string()))
        docs = docs.annotate("encoding", pa.array(self.encodings, pa.string()))
        docs = docs.annotate("replaced", self.replaced)
        for name, values in self.columns.items():
            docs = (docs.state if name == "title" else docs.annotate)(name, values)
        docs = docs.drop(large, "html_too_large", self.size, self.limit)
        docs = docs.drop(self.depth > 0, "nested_too_deep", self.depth, MAX_DEPTH)
        if many.any():
            from curate.extract.tags import MAX_ELEMENTS

            docs = docs.drop(many, "too_many_elements", self.tags, MAX_ELEMENTS)
        other = np.zeros(len(failed), np.bool_)
        for label, rows in sorted(self.undecodable.items()):
            mask = np.isin(np.arange(len(failed)), rows)
            docs, other = docs.drop(mask, f"undecodable_{label}"), other | mask
        unparsable = failed & ~other & ~large & ~many & (self.depth == 0)
        docs = docs.drop(unparsable, "unparsable", detail=self.details)
        empty = np.array([not (t or "").strip() for t in self.texts], np.bool_)
        return docs.drop(empty & ~failed, "no_text")
