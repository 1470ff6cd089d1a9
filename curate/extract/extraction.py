"""The step `extract`: payloads become text, and what a page says of itself becomes columns.

`blocks` takes a batch of pages at once (blocks.py). The other extractors are functions from decoded
HTML to text: those in EXTRACTORS, whose libraries MODULES names.
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

# Control characters U+0080 to U+009F in UTF-8 are characters of windows-1252 that were decoded as
# Latin-1; HTML reads references to their numbers so.
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
_C1_TEXT = {chr(n).encode(): unescape(f"&#{n};").encode() for n in range(0x80, 0xA0)}


def _has_c1(payload: bytes) -> bool:
    at = payload.find(b"\xc2")  # ten times as fast as a search for the expression
    while 0 <= at < len(payload) - 1 and payload[at + 1] >= 0xA0:
        at = payload.find(b"\xc2", at + 2)
    return at >= 0


MAX_DEPTH = 512  # where browsers stop nesting too (Blink: kMaximumHTMLParserDOMTreeDepth)
MAX_WORK = 20_000_000  # elements times blocks: about a second of main content at worst


class TooDeep(Exception):
    """A page nested deeper than the limit; carries the depth."""

    def __init__(self, depth: int) -> None:
        super().__init__(f"nested {depth} elements deep")
        self.depth = depth


def nesting(html: str) -> int:
    """Depth of the page's tree; 0 where it cannot matter.

    The main content mode looks at all that is inside of each `div` and `article`, so nested ones
    cost time with the square of their number, and a page may be built to stall it
    (benchmarks/hostile_pages.py). Walking the tree costs more than extraction, so it is done
    for pages alone that have enough of both for that.
    """
    tags = html.count("<")
    if tags * tags <= MAX_WORK:
        return 0
    lower = html.lower()
    if tags * (lower.count("<div") + lower.count("<article")) <= MAX_WORK:
        return 0
    return depth_of(html)


def depth_of(html: str) -> int:
    """Depth of the page's tree."""
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
    """resiliparse's main content mode as DCLM ran it for its pool (Li et al. 2024, section 4.2;
    mlfoundations/dclm, tools/commoncrawl/process_common_crawl_w_ray.py: main_content=True, the rest
    the library's defaults, which are written out here so that they stay).

    Raises TooDeep beyond MAX_DEPTH.
    """
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
    """All visible text of the page, menus and footers included."""
    from resiliparse.extract.html2text import extract_plain_text

    text: str = extract_plain_text(html, preserve_formatting=True, main_content=False)
    return text


# Extractors of other projects, which are no part of the installation. Both build a tree of the
# whole page and recurse into it, so pages nested deeper than MAX_DEPTH are rejected before.
MODULES = {"trafilatura": "trafilatura", "justext": "justext"}


def need(extractor: str) -> None:
    """RunFailed with what to install, where the extractor's library is absent."""
    module = MODULES.get(extractor)
    if module is not None and find_spec(module) is None:
        raise RunFailed(
            f"extractor {extractor} needs a library: pip install 'llmcurate[extractors]'"
        )


def shallow(html: str) -> None:
    """TooDeep where a page is nested deeper than MAX_DEPTH."""
    depth = depth_of(html) if html.count("<") > MAX_DEPTH else 0
    if depth > MAX_DEPTH:
        raise TooDeep(depth)


def trafilatura(favor: str) -> Callable[[str], str]:
    """Main text without comments by trafilatura (Barbaresi 2021); favor: precision, recall or
    balanced. Its own removal of repeated passages is off: it depends on the pages before."""
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
    """jusText's stop words of a language by its English name, or of all; UsageError for others."""
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
    """The paragraphs that jusText (Pomikálek 2011) takes for text, with its default limits."""
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
    """Whether bytes of a type may say their encoding themselves: HTML, XML, and an unknown type."""
    return mime is None or mime == "text/html" or mime.endswith("xml")


EXTRACTORS: dict[str, Callable[[str], str]] = {"resiliparse": main_text, "text": full_text}


PageKind = Literal[
    "auto", "article", "collection", "documentation", "forum", "listing", "product", "service"
]


@step("extract")
class Extract(Step):
    """Turns HTML into text; rows that already have text pass unchanged."""

    # 2: list bullets and alternative texts, as DCLM has them. 3, 4: blocks by the network.
    # 5: encodings as browsers have them; XHTML, shadow roots, control characters, data of pages
    # that are mostly links. 6: weights of news too, words and sections; the name of the site.
    version: ClassVar[int] = 6

    extractor: Literal["blocks", "resiliparse", "trafilatura", "justext", "text"] = Field(
        "blocks",
        description="The extractor: blocks is llmcurate's own; resiliparse has the settings of DCLM"
        " (Li et al. 2024, section 4.2); trafilatura and justext need their libraries; text keeps"
        " all visible text of a page.",
    )
    output: Literal["text", "markdown"] = Field(
        "text",
        description="The form that blocks writes: plain text, or Markdown with headings, lists,"
        " tables, quotes and code.",
    )
    links: Literal["drop", "keep"] = Field(
        "drop", description="Whether Markdown has links, as [text](absolute URL)."
    )
    comments: Literal["auto", "keep", "drop", "mark"] = Field(
        "auto",
        description="Readers' comments on articles: as the network chooses (auto), behind the text"
        " (keep), left out (drop), or behind a line that says Comments (mark).",
    )
    tables: Literal["keep", "drop", "markdown"] = Field(
        "keep",
        description="Tables of data: kept, dropped, or written as Markdown in plain text too.",
    )
    kind: PageKind = Field("auto", description="The kind of all pages, where it is known.")
    embedded: bool = Field(
        True,
        description="Whether blocks takes the text of a page that has next to none, or links alone,"
        " from its data (JSON-LD, data for scripts, templates); the column extract.source says"
        " which.",
    )
    favor: Literal["balanced", "precision", "recall"] = Field(
        "balanced",
        description="The choice of trafilatura in doubt: precision drops a passage, recall keeps"
        " it, balanced does neither.",
    )
    stop_words: str = Field(
        "all",
        description="The language of justext's stop words by its English name, such as English, or"
        " all of them.",
    )
    max_html_bytes: int = Field(
        5 << 20,
        ge=1,
        description="Pages of more bytes are dropped, since a parsed page takes many times its size"
        " in memory.",
    )
    max_replaced: int | None = Field(
        None,
        ge=0,
        description="The most replacement characters (U+FFFD) that decoding may put in for invalid"
        " bytes; pages with more are dropped.",
    )

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
    """The rows of a batch on their way: text where there is one, else why there is none."""

    def __init__(self, docs: Documents, max_html_bytes: int) -> None:
        self.docs = docs
        rows = len(docs)
        self.limit = max_html_bytes
        self.texts: list[str | None] = []
        self.pages: list[str | None] = [None] * rows  # HTML that is still to be extracted
        self.encodings: list[str | None] = [None] * rows
        self.replaced = np.zeros(rows, np.int64)
        self.undecodable: dict[str, list[int]] = {}  # rows by the label of their encoding
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
        """Text by a function from a page to its text."""
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
            except Exception as error:  # a parser's refusal is the page's, not the run's
                self.details[row] = f"{type(error).__name__}: {error}"[:200]
        return self

    def by_blocks(self, step: Extract) -> Batch:
        """Text, its source, title, date, author, language, site and kind of page by blocks."""
        from curate.extract import metadata
        from curate.extract.blocks import main_texts
        from curate.extract.embedded import instead
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
        urls = self.docs.table["url"].to_pylist()
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
                and (data := instead(page, texts[row], where, k, writing))
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
        """The batch with its texts, columns and reasons."""
        failed = np.array([t is None for t in self.texts], np.bool_)
        large, many = self.size > self.limit, self.tags > 0
        docs = self.docs.replace(pa.array([t or "" for t in self.texts], pa.large_string()))
        docs = docs.annotate("encoding", pa.array(self.encodings, pa.string()))
        docs = docs.annotate("replaced", self.replaced)
        for name, values in self.columns.items():
            docs = (docs.state if name == "title" else docs.annotate)(name, values)
        docs = docs.drop(large, "html_too_large", self.size, self.limit)
        docs = docs.drop(self.depth > 0, "nested_too_deep", self.depth, MAX_DEPTH)
        docs = self._too_many(docs, many)
        other = np.zeros(len(failed), np.bool_)
        for label, rows in sorted(self.undecodable.items()):
            mask = np.isin(np.arange(len(failed)), rows)
            docs, other = docs.drop(mask, f"undecodable_{label}"), other | mask
        unparsable = failed & ~other & ~large & ~many & (self.depth == 0)
        docs = docs.drop(unparsable, "unparsable", detail=self.details)
        empty = np.array([not (t or "").strip() for t in self.texts], np.bool_)
        return docs.drop(empty & ~failed, "no_text")

    def _too_many(self, docs: Documents, many: np.ndarray) -> Documents:
        if not many.any():
            return docs
        from curate.extract.tags import MAX_ELEMENTS

        return docs.drop(many, "too_many_elements", self.tags, MAX_ELEMENTS)
