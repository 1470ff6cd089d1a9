"""The structure that every page has: tags that match, headings in order, tables that scroll."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise

VOID = frozenset({"meta", "br", "wbr", "input", "option"})


class _Structure(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.stack: list[tuple[str, dict[str, str]]] = []
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.anchors: list[str] = []
        self.empty_heads = 0
        self._in_head = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        inside = [name for name, _ in self.stack]
        if "id" in values:
            self.ids.append(values["id"])
        if values.get("href", "").startswith("#"):
            self.anchors.append(values["href"][1:])
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))
        if tag == "table":
            around = next(v for name, v in reversed(self.stack) if name == "div")
            assert around.get("class") == "wide" and around.get("tabindex") == "0"
            assert around.get("aria-label")
        if tag == "svg" or values.get("role") == "img":
            assert values.get("aria-label"), (tag, values)
        assert not (tag == "a" and "href" in values and "summary" in inside), "a link in a summary"
        if tag == "th":
            self._in_head = " "
        if tag not in VOID:
            self.stack.append((tag, values))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Elements of SVG without content."""

    def handle_data(self, data: str) -> None:
        self._in_head += data.strip()

    def handle_endtag(self, tag: str) -> None:
        if tag == "th":
            self.empty_heads += not self._in_head.strip()
        if tag not in VOID:
            name, _ = self.stack.pop()
            assert name == tag


def check_structure(page: str) -> None:
    """AssertionError for tags that do not match, headings that leave a level out, a table that does
    not scroll by itself, a chart or bar without a name, a link to nowhere, an id used twice."""
    structure = _Structure()
    structure.feed(page)
    structure.close()
    assert structure.stack == [] and structure.empty_heads == 0
    headings = structure.headings
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(headings)), headings
    assert len(set(structure.ids)) == len(structure.ids)
    assert set(structure.anchors) <= set(structure.ids)
