"""The extractor `blocks`: a batch of pages to their main texts, in one call of a kernel.

`scan` (scan.py) cuts a page into blocks of text, two linear classifiers (classify.py) choose those
that are main text, and render.py writes them down. docs/extraction.md has the rules and the
figures. `look_at` shows the blocks and features of one page, to those who fit the weights.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from curate.extract.attributes import automaton
from curate.extract.classify import choose, surroundings
from curate.extract.entities import entity_table
from curate.extract.features import COUNT, MASS, fill, measure
from curate.extract.metadata import FIELDS
from curate.extract.render import render
from curate.extract.scan import count_tags, scan
from curate.extract.stated import stated
from curate.extract.tags import ATTR, END, MAX_ELEMENTS, N_TAG, NAMES, NODE, START, TAG, hash_table
from curate.text.buffers import text_array, text_buffers
from kernel_cache import njit

# Weights of the two looks, in the order of features.FEATURES and SECOND, written by
# benchmarks/fit_extract.py --write.
# fmt: off
FIRST = (
    -0.096, 0.759, 0.302, 0.252, 0.332, -0.188, 0.409, 0.458, 0.221, -0.002,
    -0.242, 0.163, -0.357, 0.511, -0.958, 0.282, -0.013, 0.139, -0.466, -0.600,
    0.518, 0.698, 0.003, -0.195, -0.830, -0.408, 1.005, 0.635, 0.822, -0.362,
    0.289, 0.363, -0.281, -1.210, 0.375, 0.620, 0.304, -0.362, -1.288, 0.459,
    0.376, -0.710, -0.772, -1.383, -1.572, -1.009, 0.634, -0.168, -0.777, 0.132,
    0.256, -0.123, 0.324, 0.456, 0.137, -1.375, -0.211, -0.192, -0.641, 0.477,
    -0.431, -0.316, 0.115, -0.291, 0.023, 0.105, -0.098, -0.755, -0.094, 0.300,
    -0.082, -1.352, -0.343, -0.956, -0.421, -0.040, -0.127, -0.564, -0.086, -0.049,
    -0.126, 0.511, -0.727, 0.018, 0.106, 0.263, 0.271, -0.498, -0.774, -0.267,
    -0.976, 0.131, -1.182, -0.498, 0.501, -0.472, 0.020, -0.087, 0.026, -0.317,
    0.261, 0.053, -0.092, 0.000, -0.287, -0.073, -0.222, -0.057, -0.196, -0.175,
    -0.355, -0.575, 0.200, 0.070, -0.154, 0.417, -0.388, -0.398, -0.478, -0.121,
    -0.194, 0.024, 0.194, 0.681, -0.555, 0.886, -0.329, -0.225, -0.044, 1.000,
    0.042, 0.361, -0.040, 0.020, 0.677, -0.185, -0.060, 0.256, 0.180, 0.151,
    0.323, -0.030, 0.104, -0.137, 0.309, 0.408, -0.193, 0.912, -0.082, 0.335,
    -0.332, 0.895, 0.286, -0.175, -0.588, 0.664, 0.064, 0.729, 0.066, -0.817,
    0.028, -1.582, 0.982, -0.844, -0.513,
)
LAST = (
    0.214, 0.737, 0.422, 0.316, 0.460, -0.122, 0.420, 0.586, 0.083, -0.163,
    -0.205, 0.108, -0.355, 0.504, -1.038, 0.221, -0.091, 0.085, -0.457, -0.484,
    0.497, 0.796, -0.009, -0.129, -0.786, -0.452, 0.966, 0.813, 0.978, -0.548,
    0.332, 0.502, -0.261, -1.321, 0.358, 0.773, 0.272, -0.399, -1.285, 0.552,
    0.554, -0.862, -0.997, -1.513, -1.687, -1.062, 0.598, -0.135, -0.792, 0.396,
    0.245, -0.142, 0.259, 0.597, 0.181, -1.474, -0.304, -0.296, -0.714, 0.606,
    -0.515, -0.398, 0.150, -0.393, 0.184, 0.247, -0.334, -1.049, -0.076, 0.245,
    -0.070, -1.445, -0.209, -1.097, -0.429, -0.225, -0.178, -0.688, -0.201, -0.047,
    -0.323, 0.250, -0.752, 0.112, 0.158, 0.541, 0.396, -0.251, -0.504, -0.112,
    -0.836, 0.095, -1.552, -0.590, 0.249, -0.450, 0.177, -0.306, 0.249, -0.291,
    0.384, 0.161, -0.091, 0.105, -0.540, 0.165, -0.184, -0.049, -0.119, -0.230,
    -0.249, -0.551, 0.212, -0.115, -0.191, 0.321, -0.378, -0.383, -0.422, -0.108,
    -0.150, 0.075, 0.227, 0.638, -0.513, 0.790, -0.293, -0.086, -0.038, 1.040,
    0.166, 0.470, -0.289, 0.200, 0.784, -0.089, -0.187, 0.321, 0.032, 0.031,
    0.501, 0.164, -0.128, 0.206, 0.200, 0.153, -0.135, 1.202, 0.089, 0.325,
    -0.099, 1.171, 0.186, -0.262, -0.658, 0.787, -0.012, 0.854, 0.156, -0.848,
    0.021, -0.661, 0.148, -0.977, -0.132, -0.365, -0.849, -0.313, -0.249, -0.455,
    -0.504, 0.217, -0.346, -0.090, -0.081, 0.307, 0.580, -0.189, -0.045, -1.834,
    -0.506, -0.413, 0.270, -0.471, -0.404, -1.252,
)
# fmt: on


# What kernels look things up in: tags.hash_table of elements; of attributes, with the automaton of
# hints behind; entities.entity_table.
Tables = namedtuple("Tables", "tag_keys tag_values attributes entities")


@lru_cache(maxsize=1)
def tables() -> Any:
    """The tables, built once."""
    names = {name: number for name, number in TAG.items() if name}
    return Tables(*hash_table(names), (*hash_table(ATTR), *automaton()), entity_table())


@lru_cache(maxsize=1)
def weights() -> tuple[np.ndarray, np.ndarray]:
    """Those of the first and of the second look: float32[]."""
    return np.array(FIRST, np.float32), np.array(LAST, np.float32)


@njit(cache=True, nogil=True)
def _extract(data, offsets, tables, first, last, markdown):
    """(out: uint8[], out_offsets: int64[rows + 1], tags: int64[rows], meta: see MainTexts).

    A page of more than MAX_ELEMENTS tags has no text."""
    rows = len(offsets) - 1
    out = np.empty(1 << 16, np.uint8)
    out_offsets = np.zeros(rows + 1, np.int64)
    tags = np.zeros(rows, np.int64)
    meta = np.zeros((rows, FIELDS, 3), np.int64)
    at = 0
    for r in range(rows):
        a, z = offsets[r], offsets[r + 1]
        tags[r] = count_tags(data, a, z)
        if z > a and tags[r] <= MAX_ELEMENTS:
            text, blocks, nodes, fields = scan(data, a, z, tags[r], tables)
            for f in range(FIELDS):
                for k in range(3):
                    meta[r, f, k] = fields[f, k]
            if len(blocks):
                keep = choose(text, blocks, nodes, first, last)
                page = render(text, blocks, nodes, keep, markdown)
                if at + len(page) > len(out):
                    larger = np.empty(max(2 * len(out), at + len(page)), np.uint8)
                    for k in range(at):
                        larger[k] = out[k]
                    out = larger
                for k in range(len(page)):
                    out[at + k] = page[k]
                at += len(page)
        out_offsets[r + 1] = at
    return out[:at], out_offsets, tags, meta


@dataclass
class MainTexts:
    """text: a row a page; tags: int64[rows], with no text where they are over MAX_ELEMENTS; meta:
    int64[rows, FIELDS, 3]: rank and place in data, the input's bytes (metadata.py)."""

    text: pa.LargeStringArray
    tags: np.ndarray
    meta: np.ndarray
    data: np.ndarray

    def stated(self, row: int) -> list[str | None]:
        """Title, date, author and language as page `row` states them, None where it does not."""
        return stated(self.data, self.meta[row].tolist())


def main_texts(
    pages: pa.LargeStringArray,
    markdown: bool = False,
    looks: tuple[np.ndarray, np.ndarray] | None = None,
) -> MainTexts:
    """The main texts of decoded HTML pages, a row each; a null page has none. looks: other weights
    than the fitted ones (`weights`)."""
    data, offsets = text_buffers(pages)
    first, last = looks or weights()
    out, out_offsets, tags, meta = _extract(data, offsets, tables(), first, last, markdown)
    return MainTexts(text_array(out, out_offsets), tags, meta, data)


def main_text(page: str, markdown: bool = False) -> str:
    """The main text of one page."""
    text: str = main_texts(pa.array([page], pa.large_string()), markdown).text[0].as_py()
    return text


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
    elements.py and features.py."""

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
    features: np.ndarray = surroundings(seen.blocks, seen.nodes, seen.measures, chances)
    return features
