"""The step `extract`: payloads become text, and what a page says of itself becomes columns.

`blocks` takes a batch of pages at once (blocks.py). The other extractors are functions from decoded
HTML to text: those in EXTRACTORS, whose libraries MODULES names.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from curate.documents.documents import DATE, Documents
from curate.steps.contracts import Identity, Step, step
from curate.text.buffers import decode
from llmcurate.base.errors import RunFailed, UsageError

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


HTML_TYPES = ("text/html", "application/xhtml+xml")
EXTRACTORS: dict[str, Callable[[str], str]] = {"resiliparse": main_text, "text": full_text}


@step("extract")
class Extract(Step):
    """Turns HTML into text; rows that already have text pass unchanged."""

    # 2: list bullets and alternative texts, as DCLM has them. 3, 4: blocks by the network.
    version: ClassVar[int] = 4

    extractor: Literal["blocks", "resiliparse", "trafilatura", "justext", "text"] = Field(
        "blocks",
        description="The extractor: blocks is llmcurate's own; resiliparse has the settings of DCLM"
        " (Li et al. 2024, section 4.2); trafilatura and justext need their libraries; text keeps"
        " all visible text of a page.",
    )
    format: Literal["text", "markdown"] = Field(
        "text",
        description="The format that blocks writes: plain text, or Markdown with headings, tables,"
        " quotes and code.",
    )
    embedded: bool = Field(
        True,
        description="Whether blocks takes the text of a nearly empty page from its data (JSON-LD,"
        " data for scripts, templates); the column extract.source says which.",
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

    def identity(self) -> Identity:
        need(self.extractor)
        if self.extractor == "justext":
            stop_words(self.stop_words)
        return super().identity()

    def apply(self, docs: Documents) -> Documents:
        if "payload" not in docs.table.column_names:
            return docs.drop(docs.text.is_null().to_numpy(zero_copy_only=False), "no_payload")
        batch = Batch(docs, self.max_html_bytes)
        if self.extractor == "blocks":
            return batch.by_blocks(self.format == "markdown", self.embedded).finish()
        return batch.one_by_one(self._function()).finish()

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
        self.details: list[str | None] = [None] * rows
        self.size = np.zeros(rows, np.int64)
        self.depth = np.zeros(rows, np.int64)
        self.tags = np.zeros(rows, np.int64)
        self.columns: dict[str, pa.Array] = {}
        names = ("text", "payload", "mime", "charset")
        for row, values in enumerate(zip(*(docs.table[n] for n in names), strict=True)):
            ready, payload, mime, charset = (v.as_py() for v in values)
            self.texts.append(ready)
            if ready is not None or payload is None:
                continue
            self.size[row] = len(payload)
            if len(payload) > max_html_bytes:
                continue
            html = mime in HTML_TYPES
            page, self.encodings[row] = decode(payload, charset, html=html)
            if mime is not None and mime.startswith("text/") and not html:
                self.texts[row] = page
            else:
                self.pages[row] = page

    def one_by_one(self, extract: Callable[[str], str]) -> Batch:
        """Text by a function from a page to its text."""
        for row, page in enumerate(self.pages):
            if page is None:
                continue
            try:
                self.texts[row] = extract(page)
            except MemoryError:
                raise
            except TooDeep as error:
                self.depth[row] = error.depth
            except Exception as error:  # a parser's refusal is the page's, not the run's
                self.details[row] = f"{type(error).__name__}: {error}"[:200]
        return self

    def by_blocks(self, markdown: bool, embedded: bool) -> Batch:
        """Text, its source, title, date, author, language and kind of page by blocks."""
        from curate.extract import metadata
        from curate.extract.blocks import main_texts
        from curate.extract.net import KINDS
        from curate.extract.tags import MAX_ELEMENTS

        pages = pa.array(self.pages, pa.large_string())
        result = main_texts(pages, markdown)
        columns: dict[str, list[Any]] = {
            "title": [],
            "published": [],
            "author": [],
            "lang_hint": [],
            "source": [],
        }
        for row, page in enumerate(self.pages):
            title = date = author = lang = source = None
            if page is not None:
                many = result.tags[row] > MAX_ELEMENTS
                self.tags[row] = result.tags[row] if many else 0
                self.texts[row] = None if many else result.text[row].as_py()
                title, date, author, lang = result.stated(row)
                if not many:
                    source = self._take_embedded(row, page, markdown) if embedded else "page"
            columns["title"].append(title)
            columns["published"].append(metadata.published(date))
            columns["author"].append(metadata.author(author))
            columns["lang_hint"].append(metadata.language_tag(lang))
            columns["source"].append(source)
        for name, values in columns.items():
            self.columns[name] = pa.array(values, DATE if name == "published" else pa.string())
        unknown = result.kinds < 0
        kinds = pa.array(KINDS).take(pa.array(result.kinds, pa.int64(), mask=unknown))
        self.columns["kind"] = kinds
        self.columns["kind_probability"] = pa.array(result.chances, pa.float32(), mask=unknown)
        return self

    def _take_embedded(self, row: int, page: str, markdown: bool) -> str:
        """The source of a page's text: its data, where it is nearly empty and they hold more."""
        from curate.extract.embedded import FEW, embedded_text

        text = self.texts[row] or ""
        if len(text) < FEW and (data := embedded_text(page, markdown)) and len(data[0]) > len(text):
            self.texts[row], source = data
            return source
        return "page"

    def finish(self) -> Documents:
        """The batch with its texts, columns and reasons."""
        failed = np.array([t is None for t in self.texts], np.bool_)
        large, many = self.size > self.limit, self.tags > 0
        docs = self.docs.replace(pa.array([t or "" for t in self.texts], pa.large_string()))
        docs = docs.annotate("encoding", pa.array(self.encodings, pa.string()))
        for name, values in self.columns.items():
            docs = docs.annotate(name, values)
        docs = docs.drop(large, "html_too_large", self.size, self.limit)
        docs = docs.drop(self.depth > 0, "nested_too_deep", self.depth, MAX_DEPTH)
        docs = self._too_many(docs, many)
        unparsable = failed & ~large & ~many & (self.depth == 0)
        docs = docs.drop(unparsable, "unparsable", detail=self.details)
        empty = np.array([not (t or "").strip() for t in self.texts], np.bool_)
        return docs.drop(empty & ~failed, "no_text")

    def _too_many(self, docs: Documents, many: np.ndarray) -> Documents:
        if not many.any():
            return docs
        from curate.extract.tags import MAX_ELEMENTS

        return docs.drop(many, "too_many_elements", self.tags, MAX_ELEMENTS)
