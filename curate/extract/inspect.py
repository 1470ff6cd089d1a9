"""What the extractor sees of one page, for those who fit its weights and for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curate.extract.blocks import tables
from curate.extract.classify import surroundings
from curate.extract.features import COUNT, fill
from curate.extract.measures import MASS, measure
from curate.extract.scan import count_tags, scan
from curate.extract.tags import NAMES
from curate.extract.tree import END, N_TAG, NODE, START
from kernel_cache import njit


@njit(cache=True, nogil=True)
def _rows(blocks, nodes, measures, sums, around, heading):
    rows = np.zeros((len(blocks), COUNT), np.float32)
    before = 0.0
    for i in range(len(blocks)):
        fill(i, before, blocks, nodes, measures, sums, around, heading, rows[i])
        before += measures[i, MASS]
    return rows


@dataclass
class Seen:
    """texts, tags: one a block; rows: float32[blocks, COUNT]; blocks, nodes, measures as in
    tree.py and measures.py."""

    texts: list[str]
    tags: list[str]
    rows: np.ndarray
    blocks: np.ndarray
    nodes: np.ndarray
    measures: np.ndarray


def look_at(page: str) -> Seen:
    """The blocks of a page, in order, and their features."""
    # A copy can be written to, as a batch can: the scanner is compiled once for both.
    data = np.frombuffer(page.encode("utf-8"), np.uint8).copy()
    tags = count_tags(data, 0, len(data))
    text, blocks, nodes, _ = scan(data, 0, len(data), tags, tables())
    raw = text.tobytes()
    measures, sums, around, heading = measure(text, blocks, nodes)
    rows = _rows(blocks, nodes, measures, sums, around, heading)
    texts = [raw[b[START] : b[END]].decode() for b in blocks]
    tags = [NAMES[nodes[b[NODE], N_TAG]] for b in blocks]
    return Seen(texts, tags, rows, blocks, nodes, measures)


def surroundings_of(seen: Seen, chances: np.ndarray) -> np.ndarray:
    """float32[blocks, SECOND]: what the second look sees beside the features."""
    found: np.ndarray = surroundings(seen.blocks, seen.nodes, seen.measures, chances)
    return found
