"""The model that chooses main text: a small network over the blocks of a page.

A first layer turns the inputs of each block (inputs.py) into a vector. Further layers mix this
vector with the vectors of the two blocks before and the two after it, and with means over groups of
blocks: those in the same parent or grandparent element, with the same path, in sibling elements, in
the same repeated unit (inputs.py), below the same heading, and on the page. The kind of the page is
predicted from the mean vector and the inputs of the page, and is an input of all further layers.
benchmarks/fit_extract.py makes the weights.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from curate.extract.attributes import BIT
from curate.extract.inputs import (
    COUNT,
    MASS,
    PAGE_COUNT,
    SUM_LINKED,
    fill,
    fill_page,
    order_of,
    page_data,
)
from curate.extract.tags import HINTS, N_PARENT, NODE
from llmcurate.base.kernels import njit

MODEL = "main-text.npz"
KINDS = "article collection documentation forum listing product service".split()
_PARTS_OF_ONE = np.float32(1 << 40)
SPAN = 2  # blocks before and after that a layer sees
GROUPS, _PATHS = 7, 2  # number of kinds of groups; index of equal paths
_HIDDEN = BIT["noscript"] | BIT["unseen"] | BIT["overlay"] | BIT["cookie"]
PARTS = 1 + 2 * SPAN + GROUPS + 1  # inputs of a layer: block, neighbours, groups, page

# Shapes of the weights. first: float32[COUNT, H] and first_bias: [H]; page: [PAGE_COUNT, H];
# kind_page: [PAGE_COUNT, K], kind_mean: [H, K], kind_bias: [K], kind_out: [K, KINDS],
# kind_out_bias: [KINDS]; kind_hidden: [KINDS, H]; layers: [LAYERS, PARTS, H, H] and layer_biases:
# [LAYERS, H]; out: [LAYERS + 1, H]; out_bias: [1]; sureness, caution: [KINDS]. Before blocks are
# chosen, logits are multiplied by sureness and reduced by caution.
Net = namedtuple(
    "Net",
    "first first_bias page kind_page kind_mean kind_bias kind_out kind_out_bias kind_hidden layers"
    " layer_biases out out_bias sureness caution",
)


@lru_cache(maxsize=1)
def fitted() -> Any:
    """Return the network with the fitted weights of the package, as a Net."""
    with np.load(files("curate.extract").joinpath(MODEL).open("rb")) as arrays:
        return Net(*(np.ascontiguousarray(arrays[name], np.float32) for name in Net._fields))


@njit(nogil=True)
def _add(values, weights, out):
    whole = len(values) - len(values) % 4
    for k in range(0, whole, 4):  # four at a time, to read and write `out` less often
        a, b, c, d = values[k], values[k + 1], values[k + 2], values[k + 3]
        if a != 0 or b != 0 or c != 0 or d != 0:
            one, two, three, four = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
            for j in range(len(out)):
                out[j] += (a * one[j] + b * two[j]) + (c * three[j] + d * four[j])
    for k in range(whole, len(values)):
        for j in range(len(out)):
            out[j] += values[k] * weights[k, j]


@njit(nogil=True)
def _clip(values):
    for j in range(len(values)):
        values[j] = max(values[j], np.float32(0))


@njit(nogil=True)
def _first_layer(blocks, nodes, seen, net, page, row, hidden):
    for i in range(len(blocks)):
        fill(i, blocks, nodes, seen, row)
        h = hidden[i]
        for j in range(len(h)):
            h[j] = page[j]
        _add(row, net.first, h)
        _clip(h)


@njit(nogil=True, allocates=True)
def _means(hidden, weights, group, count):
    means = np.zeros((count, hidden.shape[1]), np.float32)
    total = np.zeros(count, np.float32)
    for i in range(len(hidden)):
        g = group[i]
        total[g] += weights[i]
        for j in range(hidden.shape[1]):
            means[g, j] += weights[i] * hidden[i, j]
    for g in range(count):
        scale = 1 / max(total[g], np.float32(1e-6))
        for j in range(hidden.shape[1]):
            means[g, j] *= scale
    return means


@njit(nogil=True, allocates=True)
def _kinds_of(page, mean, net):
    inner = net.kind_bias.copy()
    _add(page, net.kind_page, inner)
    _add(mean, net.kind_mean, inner)
    _clip(inner)
    kinds = net.kind_out_bias.copy()
    _add(inner, net.kind_out, kinds)
    most, total = np.float32(-np.inf), np.float32(0)
    for k in range(len(kinds)):
        most = max(most, kinds[k])
    for k in range(len(kinds)):
        kinds[k] = np.exp(kinds[k] - most)
        total += kinds[k]
    for k in range(len(kinds)):
        kinds[k] /= total
    return kinds


@njit(nogil=True, allocates=True)
def groups_of(blocks, nodes, seen):
    """Divide the blocks into groups, in GROUPS different ways, such as by parent element. Return
    (groups: int64[GROUPS, blocks], counts: int64[GROUPS]): for each way, the index of each block's
    group, and the number of groups. `seen` is the result of `inputs.page_data`."""
    n, units = len(blocks), seen.units
    groups = np.empty((GROUPS, n), np.int64)
    counts = np.empty(GROUPS, np.int64)
    keys = np.empty((GROUPS, n), np.int64)
    for i in range(n):
        node = blocks[i, NODE]
        up = nodes[node, N_PARENT]
        keys[0, i], keys[1, i] = up, nodes[up, N_PARENT]
        repeated, unit = units.repeated[node], units.unit[node]
        keys[3, i] = units.sibling[repeated] if repeated >= 0 else -1
        keys[4, i] = units.sibling[unit] if unit >= 0 else -1
        keys[5, i] = unit
        keys[6, i] = seen.section[i]
        groups[_PATHS, i] = seen.path[i]
    counts[_PATHS] = seen.paths
    number = np.full(max(len(nodes), n) + 1, -1)  # number of each key, from key -1 on
    for g in range(GROUPS):
        if g != _PATHS:
            counts[g] = _numbered(keys[g], groups[g], number)
    return groups, counts


@njit(nogil=True)
def _numbered(keys, numbers, number):
    count = 0
    for k in range(len(keys)):
        key = keys[k] + 1
        if number[key] < 0:
            number[key] = count
            count += 1
        numbers[k] = number[key]
    for k in range(len(keys)):
        number[keys[k] + 1] = -1
    return count


@njit(nogil=True)
def _add_near(hidden, weights, base, out):
    n = len(hidden)
    for i in range(n):
        o = out[i]
        for j in range(len(o)):
            o[j] = base[j]
        _add(hidden[i], weights[0], o)
        part = 1
        for d in range(-SPAN, SPAN + 1):
            if d:
                if 0 <= i + d < n:
                    _add(hidden[i + d], weights[part], o)
                part += 1


@njit(nogil=True)
def _add_group(means, weights, group, terms, out):
    for k in range(len(means)):
        _add(means[k], weights, terms[k])
    for i in range(len(out)):
        term, o = terms[group[i]], out[i]
        for j in range(len(o)):
            o[j] += term[j]


@njit(nogil=True)
def _add_logits(hidden, weights, logits):
    for i in range(len(hidden)):
        for j in range(hidden.shape[1]):
            logits[i] += hidden[i, j] * weights[j]


@njit(nogil=True, allocates=True)
def _layer(hidden, weights, bias, mass, groups, counts, page_mean):
    base = bias.copy()
    _add(page_mean, weights[PARTS - 1], base)
    out = np.empty_like(hidden)
    _add_near(hidden, weights, base, out)
    for g in range(GROUPS):
        means = _means(hidden, mass, groups[g], counts[g])
        _add_group(means, weights[1 + 2 * SPAN + g], groups[g], np.zeros_like(means), out)
    _clip(out.reshape(-1))
    return out


@njit(nogil=True, allocates=True)
def judge(blocks, nodes, seen, net, kind=-1):
    """Return (logits: float32[blocks], kinds: float32[KINDS]) of a page with at least one block:
    the scores of blocks as main text, and the probability of each kind of page. `seen` comes from
    `inputs.page_data`. `kind` is the page's kind as an index into KINDS if known, else -1."""
    n = len(blocks)
    page = np.zeros(PAGE_COUNT, np.float32)
    fill_page(blocks, nodes, seen, page)
    base = net.first_bias.copy()
    _add(page, net.page, base)
    hidden = np.empty((n, len(base)), np.float32)
    _first_layer(blocks, nodes, seen, net, base, np.empty(COUNT, np.float32), hidden)
    mass = np.empty(n, np.float32)
    for i in range(n):
        mass[i] = np.sqrt(seen.measures[i, MASS])
    whole = np.zeros(n, np.int64)
    kinds = _kinds_of(page, _means(hidden, mass, whole, 1)[0], net)
    if kind >= 0:
        kinds[:] = 0
        kinds[kind] = 1
    logits = np.full(n, net.out_bias[0])
    _add_logits(hidden, net.out[0], logits)
    term = np.zeros_like(base)
    _add(kinds, net.kind_hidden, term)
    for i in range(n):
        for j in range(len(term)):
            hidden[i, j] += term[j]
    groups, counts = groups_of(blocks, nodes, seen)
    for layer in range(len(net.layers)):
        mean = _means(hidden, mass, whole, 1)[0]
        hidden = _layer(
            hidden, net.layers[layer], net.layer_biases[layer], mass, groups, counts, mean
        )
        _add_logits(hidden, net.out[layer + 1], logits)
    return logits, kinds


@njit(nogil=True, allocates=True)
def keep_best(measures, chances):
    """Return bool[blocks]: the blocks whose text has the highest expected F1 with the main text.

    The likeliest blocks are kept, as many as give the highest expected F1 = 2 hits / (kept + main
    text) (Lewis 1995). If no block is certain, this keeps more blocks than a fixed limit would. No
    block is kept if the probability that the page has no main text is higher than that F1.
    `chances` (float32[blocks]) are the probabilities that each block is main text. `measures` comes
    from `inputs.measure`.
    """
    ranks = np.empty(len(chances), np.int64)
    for k in range(len(chances)):
        ranks[k] = np.int64(chances[k] * -_PARTS_OF_ONE)
    order = order_of(ranks)
    expected, none = np.float32(0), np.float32(1)
    for i in range(len(chances)):
        expected += chances[i] * measures[i, MASS]
        none *= 1 - chances[i]
    kept, hits, best, limit = np.float32(0), np.float32(0), none, np.float32(2)
    for k in range(len(order)):
        i = order[k]
        kept += measures[i, MASS]
        hits += chances[i] * measures[i, MASS]
        score = 2 * hits / (kept + expected)
        if score > best:
            best, limit = score, chances[i]
    keep = np.empty(len(chances), np.bool_)
    for k in range(len(chances)):
        keep[k] = chances[k] >= limit
    return keep


@njit(nogil=True)
def _keep_bare(blocks, measures, keep):
    # A page without links has no menu: if less than half of it is kept, keep all but hidden blocks.
    # Such pages are rare (3 of 1,912 measured), and the network was not fitted on any without
    # elements of text.
    kept, total = np.float32(0), np.float32(0)
    for i in range(len(blocks)):
        kept += measures[i, MASS] * keep[i]
        total += measures[i, MASS]
    if 2 * kept < total:
        for i in range(len(blocks)):
            keep[i] = keep[i] or blocks[i, HINTS] & _HIDDEN == 0


@njit(cache=True, nogil=True)
def choose(text, blocks, nodes, title, net, known=-1):
    """Return (keep: bool[blocks], kind, chance) of a page with at least one block. `keep` is True
    for main text, `kind` an index into KINDS, `chance` its probability. `known` is the kind if it
    is known, or -1 to predict it."""
    seen = page_data(text, blocks, nodes, title)
    chances, kinds = judge(blocks, nodes, seen, net, known)
    sureness, caution = np.float32(0), np.float32(0)
    for k in range(len(kinds)):
        sureness += kinds[k] * net.sureness[k]
        caution += kinds[k] * net.caution[k]
    for i in range(len(chances)):
        x = min(max(sureness * chances[i] - caution, np.float32(-30)), np.float32(30))
        chances[i] = 1 / (1 + np.exp(-x))
    kind = np.int64(0)
    for k in range(len(kinds)):
        if kinds[k] > kinds[kind]:
            kind = np.int64(k)
    keep = keep_best(seen.measures, chances)
    if seen.sums[0, SUM_LINKED] == 0:
        _keep_bare(blocks, seen.measures, keep)
    return keep, kind, kinds[kind]
