"""The step `extract`: payloads become text. Extractors are named in EXTRACTORS; a new one is a
function from decoded HTML to text and an entry there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from curate.documents import Documents
from curate.extract.encoding import decode
from curate.steps import Step

MAX_DEPTH = 512  # where browsers stop nesting too (Blink: kMaximumHTMLParserDOMTreeDepth)
MAX_WORK = 20_000_000  # elements times blocks: about a second of main content at worst
HTML_TYPES = ("text/html", "application/xhtml+xml")


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


EXTRACTORS: dict[str, Callable[[str], str]] = {"resiliparse": main_text, "text": full_text}


class Extract(Step):
    """HTML to text; rows that already have text pass unchanged."""

    name: ClassVar[str] = "extract"
    version: ClassVar[int] = 2  # 2: list bullets and alternative texts, as DCLM has them

    extractor: Literal["resiliparse", "text"] = "resiliparse"
    max_html_bytes: int = Field(
        5 << 20,
        ge=1,
        description="larger pages are dropped: parsed, they take many times their size in memory",
    )

    def apply(self, docs: Documents) -> Documents:
        if "payload" not in docs.table.column_names:
            return docs.drop(docs.text.is_null().to_numpy(zero_copy_only=False), "no_payload")
        extract = EXTRACTORS[self.extractor]
        names = ("text", "payload", "mime", "charset")
        size = np.zeros(len(docs), np.int64)
        texts: list[str | None] = []
        encodings: list[str | None] = []
        details: list[str | None] = []
        depth = np.zeros(len(docs), np.int64)
        for row, values in enumerate(zip(*(docs.table[n] for n in names), strict=True)):
            ready, payload, mime, charset = (v.as_py() for v in values)
            texts.append(ready)
            encodings.append(None)
            details.append(None)
            if ready is not None or payload is None:
                continue
            size[row] = len(payload)
            if len(payload) > self.max_html_bytes:
                continue
            try:
                page, encodings[-1] = decode(payload, charset, html=mime in HTML_TYPES)
                plain = mime is not None and mime.startswith("text/") and mime != "text/html"
                texts[-1] = page if plain else extract(page)
            except MemoryError:
                raise
            except TooDeep as error:
                depth[row] = error.depth
            except Exception as error:  # a parser's refusal is the page's, not the run's
                details[-1] = f"{type(error).__name__}: {error}"[:200]
        failed = np.array([t is None for t in texts], np.bool_)
        large = size > self.max_html_bytes
        text = pa.array([t or "" for t in texts], pa.large_string())
        docs = docs.replace(text)
        docs = docs.annotate("encoding", pa.array(encodings, pa.string()))
        docs = docs.drop(large, "html_too_large", size, self.max_html_bytes)
        docs = docs.drop(depth > 0, "nested_too_deep", depth, MAX_DEPTH)
        docs = docs.drop(failed & ~large & (depth == 0), "unparsable", detail=details)
        empty = np.array([not (t or "").strip() for t in texts], np.bool_)
        return docs.drop(empty & ~failed, "no_text")
