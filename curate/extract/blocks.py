"""The extractor `blocks`: find the main text of web pages. See docs/extraction.md.

`scan` (scan.py) cuts a page into blocks of text, a small network (net.py) chooses the blocks of the
main text, and render.py writes them.
"""

from __future__ import annotations

import itertools
from collections import namedtuple
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curate.extract.attributes import automaton
from curate.extract.comments import MARKS, split
from curate.extract.entities import entity_table
from curate.extract.inputs import COUNT, MASS, PAGE_COUNT, fill, fill_page, page_data
from curate.extract.links import link_table, with_links
from curate.extract.metadata import DOCUMENT, FIELDS, TITLE
from curate.extract.metadata_choice import stated
from curate.extract.net import KINDS, choose, fitted, groups_of
from curate.extract.render import PLAIN, TABLES, Writing, render
from curate.extract.scan import count_tags, scan
from curate.extract.tags import ATTR, END, LINK_BYTES, MAX_ELEMENTS, START, TAG, hash_table
from curate.text.buffers import text_buffers
from llmcurate.base.kernels import njit

# The kernels' lookup tables: tags.hash_table of elements; tags.hash_table of attributes with the
# automaton of hints; entities.entity_table.
Tables = namedtuple("Tables", "tag_keys tag_values attributes entities")


@lru_cache(maxsize=1)
def tables() -> Any:
    """Return the lookup tables of the scanner (scan.py), which are built only once."""
    names = {name: number for name, number in TAG.items() if name}
    return Tables(*hash_table(names), (*hash_table(ATTR), *automaton()), entity_table())


class MainTexts(NamedTuple):
    """The main texts of a batch of pages, one row per page, and metadata that the pages state."""

    text: pa.LargeStringArray
    tags: np.ndarray  # int64[rows]: number of tags; above MAX_ELEMENTS, the text is empty
    meta: np.ndarray  # int64[rows, FIELDS, 3]: rank, start and end of metadata (metadata.py)
    kinds: np.ndarray  # int64[rows]: kind of page, an index into net.KINDS; -1 without text
    chances: np.ndarray  # float32[rows]: probability of that kind
    linked: np.ndarray  # float32[rows]: share of the text that is inside links
    data: np.ndarray  # uint8[]: the bytes of all pages, in which starts and ends are offsets

    def stated(self, row: int, url: str | None = None) -> list[str | None]:
        """Return [title, date, author, language, site] of page `row`; each may be None."""
        kind = KINDS[self.kinds[row]] if self.kinds[row] >= 0 else ""
        return stated(self.data, self.meta[row].tolist(), url or "", kind)


def main_texts(
    pages: pa.LargeStringArray, writing: Writing = PLAIN, net: Any = None, urls: Any = ()
) -> MainTexts:
    """Return the main texts of decoded HTML pages, "" for a null page. `net` (net.Net) is used
    instead of the fitted network. `urls` are the pages' addresses, needed only for links."""
    data, offsets = text_buffers(pages)
    rows = len(offsets) - 1
    tags, meta = np.zeros(rows, np.int64), np.zeros((rows, FIELDS, 3), np.int64)
    kinds, chances = np.full(rows, -1, np.int64), np.zeros(rows, np.float32)
    linked = np.zeros(rows, np.float32)
    texts = [b""] * rows
    net = net or fitted()
    known, tables_as = ("auto", *KINDS).index(writing.kind) - 1, TABLES.index(writing.tables)
    markdown = writing.output == "markdown"
    linking = markdown and writing.links == "keep"
    between = MARKS[markdown] if writing.comments == "mark" else b"\n\n"
    for row, (a, z) in enumerate(itertools.pairwise(offsets.tolist())):
        tags[row] = count_tags(data, a, z)
        if z > a and tags[row] <= MAX_ELEMENTS:
            links = link_table(tags[row] if linking else 0)
            page, blocks, nodes, meta[row] = scan(data, a, z, tags[row], tables(), links)
            if len(blocks):
                title = title_of(data, meta[row])
                keep, kinds[row], chances[row] = choose(page, blocks, nodes, title, net, known)
                parts = [keep]
                if writing.comments != "auto" and KINDS[kinds[row]] == "article":
                    parts = split(page, blocks, nodes, keep, writing.comments)
                    keep = np.logical_or.reduce(parts)
                shown = page, blocks
                if linking:
                    url = (urls and urls[row]) or ""
                    shown = with_links(page, blocks, nodes, links, data[a:z], a, url)
                texts[row] = between.join(
                    render(page, blocks, nodes, part, markdown, tables_as, *shown).tobytes()
                    for part in parts
                )
                linked[row] = blocks[keep][:, LINK_BYTES].sum() / max(1, len(texts[row]))
    text = pa.array(texts, pa.large_binary()).view(pa.large_string())
    return MainTexts(text, tags, meta, kinds, chances, linked, data)


def title_of(data: np.ndarray, meta: np.ndarray) -> np.ndarray:
    """Return the bytes of a page's title: its `title` element's text, or Open Graph's title."""
    field = DOCUMENT if meta[DOCUMENT, 0] else TITLE
    _, start, end = meta[field]
    return data[start:end]


def main_text(page: str, writing: Writing = PLAIN) -> str:
    text: str = main_texts(pa.array([page], pa.large_string()), writing).text[0].as_py()
    return text


@njit(cache=True, nogil=True)
def inputs_of(text, blocks, nodes, title):
    """Return `rows`, `page`, `groups` and `mass` of the class NetInputs, for a page with blocks."""
    seen = page_data(text, blocks, nodes, title)
    rows = np.zeros((len(blocks), COUNT), np.float32)
    for i in range(len(blocks)):
        fill(i, blocks, nodes, seen, rows[i])
    page = np.zeros(PAGE_COUNT, np.float32)
    fill_page(blocks, nodes, seen, page)
    groups, _ = groups_of(blocks, nodes, seen)
    return rows, page, groups, seen.measures[:, MASS].copy()


class NetInputs(NamedTuple):
    """The inputs of the network (net.py) for one page, which is divided into blocks of text."""

    texts: list[str]  # of the blocks
    text: np.ndarray  # uint8[]: all text in UTF-8
    blocks: np.ndarray  # see tags.py
    nodes: np.ndarray  # elements, see tags.py
    title: np.ndarray  # uint8[]
    rows: np.ndarray  # float32[blocks, COUNT]: inputs for each block
    page: np.ndarray  # float32[PAGE_COUNT]: inputs for the page as a whole
    groups: np.ndarray  # int64[GROUPS, blocks]: number of each block's group, in GROUPS groupings
    mass: np.ndarray  # float32[blocks]: letters


def look_at(page: str) -> NetInputs:
    """Return the inputs of the network (net.py) for an HTML page, with blocks in page order."""
    # A copy is writable, like a batch, so numba compiles the scanner only once for both.
    data = np.frombuffer(page.encode("utf-8"), np.uint8).copy()
    tags = count_tags(data, 0, len(data))
    text, blocks, nodes, meta = scan(data, 0, len(data), tags, tables(), link_table(0))
    title = title_of(data, meta)
    raw = text.tobytes()
    texts = [raw[b[START] : b[END]].decode() for b in blocks]
    return NetInputs(texts, text, blocks, nodes, title, *inputs_of(text, blocks, nodes, title))
