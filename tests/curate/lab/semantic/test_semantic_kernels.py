"""The kernels of semantic dedup against plain numpy."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from curate.lab.semantic import matrix as embeddings
from curate.lab.semantic import matrix as embeddings_basis
from curate.lab.semantic import neighbours as semantic_clusters
from curate.lab.semantic.matrix import MOST_COUNTED, hashed_counts
from curate.text.buffers import text_buffers
from curate.text.words import word_table

MASK = 2**64 - 1


def plain_mix(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33


def plain_counts(hashes: list[int], features: int) -> dict[int, int]:
    values = hashes + [plain_mix((a * 0x9E3779B97F4A7C15 + b) & MASK) for a, b in pairwise(hashes)]
    return Counter((v >> 32) * features >> 32 for v in values)


def counted(texts: list[str | None], features: int) -> embeddings.Counts:
    table = word_table(*text_buffers(pa.array(texts, pa.large_string())))
    return embeddings.Counts(*hashed_counts(table.rows, table.hash, features))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text(alphabet="ab \x00é\n", max_size=60) | st.none(), max_size=6),
    st.sampled_from([256, 300, 2**18]),
)
def test_counts_are_those_of_words_and_their_pairs(texts, features):
    table = word_table(*text_buffers(pa.array(texts, pa.large_string())))
    counts = counted(texts, features)
    for d in range(len(texts)):
        span = slice(counts.offsets[d], counts.offsets[d + 1])
        buckets = counts.buckets[span].tolist()
        assert len(set(buckets)) == len(buckets)
        hashes = table.hash[table.rows[d] : table.rows[d + 1]].tolist()
        got = dict(zip(buckets, counts.counts[span].tolist(), strict=True))
        assert got == plain_counts(hashes, features)


def test_a_word_counts_up_to_a_limit():
    counts = counted(["a " * (MOST_COUNTED + 10)], 2**18)
    assert sorted(counts.counts.tolist()) == [MOST_COUNTED, MOST_COUNTED]


def plain_weights(counts: embeddings.Counts, idf: np.ndarray) -> np.ndarray:
    dense = np.zeros((len(counts.offsets) - 1, len(idf)))
    for d in range(len(dense)):
        for k in range(counts.offsets[d], counts.offsets[d + 1]):
            dense[d, counts.buckets[k]] = (1 + math.log(counts.counts[k])) * idf[counts.buckets[k]]
    return dense


TEXTS = [
    "the cat sat on the mat and the dog sat on the cat",
    "the cat sat on the mat and the dog lay beside the cat",
    "stocks fell sharply after the bank raised its rates again",
    "after the bank raised rates again stocks fell",
    "a recipe for bread with flour water and salt",
    "flour water and salt make a bread",
]


@pytest.mark.parametrize("residual", [0, 1, 16])
def test_vectors_are_weights_on_the_axes_and_the_hashed_rest(residual):
    features = 512
    counts = counted(TEXTS, features)
    df = np.bincount(counts.buckets, minlength=features)
    basis = embeddings_basis.fit(df, len(TEXTS), counts, 4, residual, 1)
    dense = plain_weights(counts, np.log((1 + len(TEXTS)) / (1 + df)) + 1)
    axes = np.zeros((features, 4))
    axes[basis.row >= 0] = basis.axes[basis.row[basis.row >= 0]]
    on_axes = dense @ axes
    rest = dense - on_axes @ axes.T
    hashed = np.zeros((features, residual))
    if residual:
        at, signs = embeddings_basis.signed_dimensions(np.arange(features), residual)
        hashed[np.arange(features), at] = signs
    expected = np.hstack([on_axes, rest @ hashed])
    np.testing.assert_allclose(basis.vectors(*counts), expected, atol=2e-4)


def test_the_residual_keeps_inner_products():
    """Cosines of vectors with the rest are near those of the whole weights; without it they are
    those of the part that the axes explain."""
    draw = np.random.default_rng(0)
    words = [f"w{i}" for i in range(3000)]
    base = [" ".join(draw.choice(words, 200)) for _ in range(60)]
    texts = base + [" ".join([*t.split()[:150], *draw.choice(words, 50)]) for t in base]
    features = 2**16
    counts = counted(texts, features)
    df = np.bincount(counts.buckets, minlength=features)
    dense = plain_weights(counts, np.log((1 + len(texts)) / (1 + df)) + 1)
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    true = (dense @ dense.T)[np.triu_indices(len(texts), 1)]
    errors = {}
    for residual in (0, 64, 1024):
        basis = embeddings_basis.fit(df, len(texts), counts, 16, residual, 1)
        vectors = basis.vectors(*counts)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        ours = (vectors @ vectors.T)[np.triu_indices(len(texts), 1)]
        errors[residual] = np.sqrt(((ours - true) ** 2).mean())
    assert errors[0] > 0.2
    assert errors[64] < 0.15 and errors[1024] < 0.04


def test_axes_are_the_first_singular_vectors():
    draw = np.random.default_rng(3)
    strengths = np.array([9.0, 7.0, 5.0, 3.0] + [0.05] * 16)
    basis = np.linalg.qr(draw.standard_normal((60, 20)))[0]
    right = np.linalg.qr(draw.standard_normal((80, 20)))[0]
    matrix = (basis * strengths) @ right.T
    axes = embeddings_basis.randomized_axes(csr_array(matrix), 4, 1)
    exact = np.linalg.svd(matrix)[2][:4].T
    overlap = np.abs((axes * exact).sum(axis=0))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-4)
    assert (axes[np.abs(axes).argmax(axis=0), np.arange(4)] > 0).all()


def test_a_sample_without_words_has_no_axes():
    none = embeddings.Counts(np.zeros(4, np.int64), np.empty(0, np.uint32), np.empty(0, np.uint16))
    basis = embeddings_basis.fit(np.zeros(256, np.int64), 3, none, 8, 4, 1)
    assert basis.vectors(*none).shape == (3, 12)
    assert not basis.vectors(*none).any()


vectors = st.integers(1, 300).flatmap(
    lambda size: st.lists(
        st.lists(st.floats(-1e3, 1e3, width=32), min_size=size, max_size=size),
        min_size=2,
        max_size=5,
    )
)


@settings(deadline=None, max_examples=60)
@given(vectors)
def test_products_of_whole_numbers_are_exact_in_float32(rows):
    whole = embeddings.whole_numbers(np.array(rows, np.float32))
    wide = whole.astype(np.int64)
    exact = wide @ wide.T
    assert (np.abs(exact) < 2**24).all()
    floats = whole.astype(np.float32)
    assert (floats @ floats.T == exact).all()
    assert (embeddings.squared_lengths(whole) == np.diag(exact)).all()


def test_rounding_moves_a_cosine_by_little():
    draw = np.random.default_rng(5)
    x = draw.standard_normal((500, 192))
    y = x + 0.3 * draw.standard_normal(x.shape)
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y)]
    a, b = (embeddings.whole_numbers(v).astype(float) for v in (x, y))
    ours = (a * b).sum(axis=1) / np.sqrt(
        embeddings.squared_lengths(a) * embeddings.squared_lengths(b)
    )
    assert np.abs(ours - (unit[0] * unit[1]).sum(axis=1)).max() < 5e-4


def test_rows_of_zeros_or_non_finite_numbers_become_zeros():
    rows = np.array([[0, 0], [np.nan, 1], [np.inf, 1], [3, 4], [1e-30, 0]], np.float32)
    whole = embeddings.whole_numbers(rows)
    assert whole.tolist() == [[0, 0], [0, 0], [0, 0], [2400, 3200], [4000, 0]]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4), st.lists(st.lists(st.integers(-5, 5), min_size=6, max_size=6)))
def test_the_largest_scores_come_first_and_ties_by_column(nearest, rows):
    scores = np.array(rows, np.float32).reshape(-1, 6)
    labels = np.empty((len(scores), nearest), np.int64)
    values = np.empty((len(scores), nearest), np.float32)
    semantic_clusters.largest(scores, labels, values)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :nearest]
    assert (labels == expected).all()
    assert (values == np.take_along_axis(scores, expected, axis=1)).all()


def test_sums_of_clusters_are_sums_of_their_rows():
    draw = np.random.default_rng(7)
    block = draw.integers(-4000, 4000, (50, 9)).astype(np.float32)
    labels = draw.integers(0, 4, 50)
    sums = np.zeros((4, 9))
    semantic_clusters.add_rows(block, labels, sums)
    assert (sums == [block[labels == c].sum(axis=0) for c in range(4)]).all()


def cloud(groups: int, each: int, spread: float, size: int = 24, seed: int = 0) -> np.ndarray:
    """int16[groups * each, size]: directions around `groups` centres, in order of the centres."""
    draw = np.random.default_rng(seed)
    centres = np.repeat(draw.standard_normal((groups, size)), each, axis=0)
    return embeddings.whole_numbers(centres + spread * draw.standard_normal(centres.shape))


def test_clusters_are_the_groups_that_were_put_in():
    matrix = cloud(8, 50, 0.15)
    order = np.random.default_rng(1).permutation(len(matrix))
    centroids = semantic_clusters.fit(matrix[order], np.arange(len(matrix)), 24, 1)
    labels = semantic_clusters.nearest_centroids(matrix, centroids, np.arange(400), 1)[0][:, 0]
    groups = labels.reshape(8, 50)
    for g in range(8):
        assert not set(groups[g]) & set(np.delete(groups, g, 0).ravel())


@pytest.mark.parametrize("rows", [7, 64, 100_000])
def test_clusters_do_not_depend_on_the_size_of_blocks(rows):
    matrix = cloud(5, 60, 0.8)
    everything = np.arange(len(matrix))
    expected = semantic_clusters.fit(matrix, everything, 17, 1)
    assert (semantic_clusters.fit(matrix, everything, 17, 1, block_rows=rows) == expected).all()


def test_cosines_to_centroids_are_cosines():
    matrix = cloud(3, 20, 0.5)
    centroids = semantic_clusters.fit(matrix, np.arange(60), 3, 1)
    labels, cosines = semantic_clusters.nearest_centroids(matrix, centroids, np.arange(60), 9)
    assert labels.shape == (60, len(centroids))
    a, c = matrix.astype(float), centroids.astype(float)
    plain = (a @ c.T) / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(c, axis=1)
    np.testing.assert_allclose(cosines, plain.max(axis=1), atol=1e-3)
    np.testing.assert_allclose(cosines, plain[np.arange(60), labels[:, 0]], atol=1e-12)


def plain_highest(matrix, labels, rank):
    """Every pair that shares a cluster, by the definition."""
    wide = matrix.astype(np.int64)
    best, partner = np.zeros(len(matrix)), np.full(len(matrix), -1)
    for i in range(len(matrix)):
        for j in np.argsort(rank).tolist():
            if rank[j] >= rank[i] or not set(labels[i]) & set(labels[j]):
                continue
            cosine = (wide[i] @ wide[j]) / math.sqrt((wide[i] @ wide[i]) * (wide[j] @ wide[j]))
            if cosine > best[i]:
                best[i], partner[i] = cosine, j
    return best, partner


@pytest.mark.parametrize("nearest", [1, 2, 3])
@pytest.mark.parametrize("block", [(1024, 8192), (5, 3), (3, 50)])
def test_highest_similarities_are_those_of_all_pairs_that_share_a_cluster(nearest, block):
    matrix = cloud(4, 15, 0.6, size=12)
    rows = np.arange(len(matrix))
    rank = np.random.default_rng(2).permutation(len(matrix))
    centroids = semantic_clusters.fit(matrix, rows, 6, 1)
    labels, _ = semantic_clusters.nearest_centroids(matrix, centroids, rows, nearest)
    best, partner = semantic_clusters.highest(matrix, rows, labels, rank, block)
    expected, others = plain_highest(matrix, labels, rank)
    assert (best == expected).all()
    assert (partner == others).all()


def test_the_same_vector_is_found_whatever_the_hash(monkeypatch):
    matrix = embeddings.whole_numbers(np.random.default_rng(0).standard_normal((30, 5)))
    matrix[[3, 9, 20]] = matrix[7]
    rank = np.arange(30)[::-1]
    rows = np.array([1, 3, 7, 9, 20, 21])
    expected = [1, 20, 20, 20, 20, 21]
    assert semantic_clusters.same_vectors(matrix, rows, rank).tolist() == expected
    keys = semantic_clusters.row_keys(matrix[rows])
    assert len(set(keys.tolist())) == 3 and len(set(keys[1:5].tolist())) == 1
    monkeypatch.setattr(
        semantic_clusters, "row_keys", lambda block: np.zeros(len(block), np.uint64)
    )
    assert semantic_clusters.same_vectors(matrix, rows[:1], rank).tolist() == [1]
    # All keys collide: what differs from the head stands for itself.
    firsts = semantic_clusters.same_vectors(matrix, rows, rank)
    assert (matrix[firsts] == matrix[rows]).all()


def test_two_nearest_clusters_find_pairs_that_one_loses():
    """Neighbours on either side of a border: against all pairs, own clusters alone find fewer."""
    draw = np.random.default_rng(11)
    base = draw.standard_normal((2000, 16))
    near = base + 0.3 * draw.standard_normal(base.shape)
    matrix = embeddings.whole_numbers(np.vstack([base, near]))
    rows, rank = np.arange(4000), np.random.default_rng(0).permutation(4000)
    centroids = semantic_clusters.fit(matrix, rows, 63, 1)
    everything = np.zeros((4000, 1), np.int64)
    close = semantic_clusters.highest(matrix, rows, everything, rank)[0] > 0.9
    recall = {}
    for nearest in (1, 2):
        labels, _ = semantic_clusters.nearest_centroids(matrix, centroids, rows, nearest)
        paired = semantic_clusters.highest(matrix, rows, labels, rank)[0] > 0.9
        recall[nearest] = (paired & close).sum() / close.sum()
    assert close.sum() > 1500
    assert recall[1] < 0.86
    assert recall[2] > 0.98


def test_clusters_by_default_are_about_the_square_root():
    sizes = [semantic_clusters.default_clusters(n) for n in (0, 1, 2000, 10**6, 10**10)]
    assert sizes == [1, 1, 44, 1000, 200_000]
