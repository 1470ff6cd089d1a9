"""HTML to text by resiliparse: its main content mode as DCLM ran it, and all visible text."""

from __future__ import annotations

from typing import Any

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
