"""The embeddings of a corpus as one memory-mapped file of integer rows.

A vector is scaled to length UNIT and rounded to integers. Inner products of such vectors and all
their partial sums are integers below 2^24 (Cauchy and Schwarz), which float32 holds exactly. So a
matrix product has the same bits for any library, number of threads, blocks or order of sums, and
clusters and similarities depend only on the vectors. Rounding changes a cosine by about 0.0001.
Rows are in the order of a hash of the ids, so the order of arrival does not matter, and the first
rows are a random sample.

Hashed embeddings count words and pairs of words in buckets (Weinberger et al. 2009, "the hashing
trick", without their signs, because a bucket's inverse document frequency needs counts). The
weights are (1 + ln count) * (ln((1 + N) / (1 + df)) + 1), those of scikit-learn's
TfidfTransformer(sublinear_tf=True). The weighted counts are reduced by an SVD (latent semantic
analysis, Deerwester et al. 1990), with the randomized algorithm of Halko, Martinsson and Tropp 2011
(algorithm 4.4) over a sample of documents. What the SVD leaves over of a document (its residual) is
hashed with random signs into a few more dimensions (a count sketch, Charikar et al. 2002). Inner
products of such hashes are, in expectation, those of the residuals. Without these dimensions, two
documents would count as similar if they agreed only in the small part that the SVD explains
(docs/dedup/semantic.md has figures). `residual=0` is plain LSA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from curate.corpus import journal
from curate.corpus.shuffle.tasks import FolderTask, Group, GroupTask, groups, run_tasks
from curate.corpus.sketches import Sketches, sketch_batches
from curate.text.hashing import mix
from llmcurate.base.disk.files import allocate, clear_temporary, remove, replacing
from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import njit

_PAIR_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
MOST_COUNTED = 65535  # largest count of a bucket in a document


@njit(nogil=True)
def bucket(value, features):
    """Return the bucket of a hash, an int64 below `features` (< 2^32)."""
    return np.int64(((value >> _HALF) * np.uint64(features)) >> _HALF)


@njit(cache=True, nogil=True)
def hashed_counts(rows, hashes, features):
    """Count the words and pairs of neighbouring words of each document by bucket.

    `hashes` is uint64[words], the hash of each word; `rows` is int64[documents + 1], the first word
    of each document. Return (offsets: int64[documents + 1], buckets: uint32[], counts: uint16[]). A
    document's buckets are in the order of their first occurrence.
    """
    documents = len(rows) - 1
    words = rows[documents] - rows[0]
    offsets = np.zeros(documents + 1, np.int64)
    buckets = np.empty(2 * words, np.uint32)  # pages never written take no memory
    counts = np.empty(2 * words, np.uint16)
    counts_by_bucket = np.zeros(features, np.int64)
    used = 0
    for d in range(documents):
        begin = used
        for w in range(rows[d], rows[d + 1]):
            for pair in range(2 if w + 1 < rows[d + 1] else 1):
                value = hashes[w]
                if pair:
                    value = mix(value * _PAIR_FACTOR + hashes[w + 1])
                b = bucket(value, features)
                if counts_by_bucket[b] == 0:
                    buckets[used] = b
                    used += 1
                counts_by_bucket[b] += 1
        for k in range(begin, used):
            counts[k] = min(counts_by_bucket[buckets[k]], MOST_COUNTED)
            counts_by_bucket[buckets[k]] = 0
        offsets[d + 1] = used
    return offsets, buckets[:used].copy(), counts[:used].copy()


SAMPLE = 4096  # documents from which the SVD is computed
MOST_FEATURES = 65_536  # most frequent features of the sample; the residual covers the others
OVERSAMPLE, ITERATIONS = 10, 2


@dataclass(frozen=True)
class Basis:
    """The weights and axes that turn hashed counts into vectors."""

    idf: np.ndarray  # float32[features]: weights
    row: np.ndarray  # int32[features]: the feature's row in `axes`, -1 for none
    axes: np.ndarray  # float32[rows, dimensions]
    mixed: np.ndarray  # float32[dimensions, residual]: axes, hashed like a residual

    @property
    def size(self) -> int:
        return int(self.mixed.shape[0] + self.mixed.shape[1])

    def vectors(self, offsets: np.ndarray, buckets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the vectors of hashed counts, float32[documents, size], not normalised. Raises
        UsageError for unknown features, which may come from another run's sketches."""
        if len(buckets) and not 0 <= int(buckets.min()) <= int(buckets.max()) < len(self.idf):
            raise UsageError("the sketches have unknown features: run that dedup again")
        return project(offsets, buckets, counts, self.idf, self.row, self.axes, self.mixed)

    def save(self, path: Path) -> None:
        with replacing(path) as aside, aside.open("wb") as file:
            np.savez(file, idf=self.idf, row=self.row, axes=self.axes, mixed=self.mixed)

    @classmethod
    def load(cls, path: Path) -> Basis:
        """Return the basis that `save` wrote. Raises UsageError if the file is damaged."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                idf, row, axes, mixed = (arrays[name] for name in ("idf", "row", "axes", "mixed"))
            sound = (
                (idf.ndim, row.ndim, axes.ndim, mixed.ndim) == (1, 1, 2, 2)
                and (row.dtype == np.int32)
                and all(values.dtype == np.float32 for values in (idf, axes, mixed))
                and len(idf) == len(row)
                and axes.shape[1] == mixed.shape[0]
                and bool(((row >= -1) & (row < len(axes))).all())
            )
        except OSError:
            raise
        except Exception:  # many kinds; MemoryError if the file claims a huge size
            sound = False
        if not sound:
            raise UsageError(f"{path} is damaged: run that dedup again")
        return cls(idf, row, axes, mixed)


@njit(nogil=True)
def dimension_of(feature, residual):
    """Return (index, sign) by a hash of `feature`. A count sketch of `residual` dimensions adds the
    feature's weight, times the sign (1.0 or -1.0), to the dimension with this index."""
    value = mix(np.uint64(feature) + np.uint64(0x51ED270B))
    sign = 1.0 if value & np.uint64(1) else -1.0
    return np.int64((value >> np.uint64(1)) % np.uint64(residual)), sign


@njit(cache=True, nogil=True)
def signed_dimensions(features, residual):
    """Return (indexes: int64[n], signs: float32[n]): the dimension of a count sketch to which each
    of n features is added, and its sign there. `residual`: number of dimensions of the sketch."""
    at = np.empty(len(features), np.int64)
    signs = np.empty(len(features), np.float32)
    for i in range(len(features)):
        at[i], signs[i] = dimension_of(features[i], residual)
    return at, signs


@njit(cache=True, nogil=True)
def project(offsets, buckets, counts, idf, row, axes, mixed):
    """Return float32[documents, dimensions + residual]: each document's TF-IDF vector projected on
    the SVD's axes, then what the projection leaves over (the residual), with its features hashed to
    `residual` dimensions. `buckets` are the documents' features, `row` is each feature's row in
    `axes`, and `mixed` is the axes with their features hashed in the same way. Each document is
    summed on its own, in the order of its buckets, so other documents do not change a bit of its
    vector."""
    dimensions, residual = mixed.shape
    out = np.zeros((len(offsets) - 1, dimensions + residual), np.float32)
    for d in range(len(offsets) - 1):
        for k in range(offsets[d], offsets[d + 1]):
            f = buckets[k]
            weight = np.float32(1.0 + np.log(counts[k])) * idf[f]
            if residual:
                at, sign = dimension_of(f, residual)
                out[d, dimensions + at] += np.float32(sign) * weight
            r = row[f]
            if r >= 0:
                for j in range(dimensions):
                    out[d, j] += weight * axes[r, j]
        for j in range(dimensions):
            explained = out[d, j]
            for m in range(residual):
                out[d, dimensions + m] -= explained * mixed[j, m]
    return out


def randomized_axes(matrix, dimensions: int, seed: int) -> np.ndarray:
    """Return float32[columns, at most `dimensions`]: the right singular vectors of a sparse matrix
    with the largest singular values, in falling order."""
    rows, _ = matrix.shape
    wide = min(dimensions + OVERSAMPLE, min(matrix.shape))
    matrix = matrix.astype(np.float32)
    draw = np.random.default_rng(seed).standard_normal((rows, wide))
    range_ = np.linalg.qr(draw)[0].astype(np.float32)
    turned = matrix.T  # the same numbers, by column
    for _ in range(ITERATIONS):
        product = (matrix @ (turned @ range_)).astype(np.float64)
        range_ = np.linalg.qr(product)[0].astype(np.float32)
    image = turned @ range_
    values, within = np.linalg.eigh((image.T @ image).astype(np.float64))
    best = np.argsort(-values, kind="stable")[:dimensions]
    best = best[values[best] > 1e-6 * max(values[best[0]], 1e-30)] if len(best) else best
    axes = image @ (within[:, best] / np.sqrt(values[best])).astype(np.float32)
    # The sign of a singular vector is arbitrary: the largest entry is made positive.
    largest = np.abs(axes).argmax(axis=0)
    axes *= np.where(axes[largest, np.arange(axes.shape[1])] < 0, -1.0, 1.0).astype(np.float32)
    return axes


def fit(
    df: np.ndarray,
    documents: int,
    sample: tuple[np.ndarray, np.ndarray, np.ndarray],
    dimensions: int,
    residual: int,
    seed: int,
) -> Basis:
    """Return the weights and SVD axes that turn feature counts into vectors. The corpus has
    `documents` documents, with document frequencies `df`, int64[features]. `sample` is (offsets,
    buckets, counts) of some documents. `dimensions`: number of axes. `residual`: number of
    dimensions for what the axes leave over."""
    from scipy.sparse import csr_array

    offsets, buckets, counts = sample
    idf = (np.log((1.0 + documents) / (1.0 + df)) + 1.0).astype(np.float32)
    frequency = np.bincount(buckets, minlength=len(df))
    # A feature that only one document has relates it to no other. Ties are broken by number.
    shared = np.flatnonzero(frequency > 1)
    used = np.sort(shared[np.argsort(-frequency[shared], kind="stable")][:MOST_FEATURES])
    row = np.full(len(df), -1, np.int32)
    row[used] = np.arange(len(used))
    weights = (1.0 + np.log(np.maximum(counts, 1))) * idf[buckets]
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    norm = np.sqrt(np.bincount(owner, weights**2, minlength=len(offsets) - 1))
    kept = row[buckets] >= 0
    weights = (weights / norm[owner])[kept]
    ends = np.concatenate([[0], np.cumsum(kept)])[offsets]
    axes = np.zeros((len(used), dimensions), np.float32)
    if len(used) and len(offsets) > 1:
        shape = (len(offsets) - 1, len(used))
        right_vectors = randomized_axes(
            csr_array((weights, row[buckets[kept]], ends), shape=shape), dimensions, seed
        )
        axes[:, : right_vectors.shape[1]] = right_vectors
    mixed = np.zeros((dimensions, residual), np.float32)
    if residual:
        at, signs = signed_dimensions(used, residual)
        for dimension in range(residual):
            hashed_to = at == dimension
            mixed[:, dimension] = signs[hashed_to] @ axes[hashed_to]
    return Basis(idf, row, axes, mixed)


T = TypeVar("T", bound=FolderTask)
UNIT = 4000
BATCH = 1000  # documents per batch of sketches
ROWS = 8192  # rows of the matrix per block


class Counts(NamedTuple):
    """Hashed counts of documents, the three arrays that `hashed_counts` returns."""

    offsets: np.ndarray
    buckets: np.ndarray
    counts: np.ndarray


def whole_numbers(vectors: np.ndarray) -> np.ndarray:
    """Return int16[rows, size]: vectors scaled to length UNIT and rounded. Vectors of length 0 and
    vectors that are not finite become zeros."""
    exact = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
    exact = exact.astype(np.float64)
    length = np.sqrt(np.einsum("ij,ij->i", exact, exact))[:, None]
    scaled = exact * (UNIT / np.where(length > 0, length, 1.0))
    # Larger vectors would break the bound on products (see the module's docstring).
    assert vectors.shape[1] <= 8192
    rounded: np.ndarray = np.rint(scaled).astype(np.int16)
    return rounded


def squared_lengths(block: np.ndarray) -> np.ndarray:
    """Return float64[rows]: the exact squared length of each row of a block of integers."""
    wide = block.astype(np.int64)
    sums: np.ndarray = np.einsum("ij,ij->i", wide, wide)
    return sums.astype(np.float64)


def blocks(
    matrix: np.ndarray, rows: np.ndarray, most: int = ROWS
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield (slice of `rows`, the matrix's rows[slice] as float32), at most `most` rows at a
    time."""
    for first in range(0, len(rows), most):
        span = slice(first, min(first + most, len(rows)))
        yield span, matrix[rows[span]].astype(np.float32)


def counts_of(batch: pa.RecordBatch) -> Counts:
    buckets, counts = batch.column("buckets"), batch.column("counts")
    offsets = buckets.offsets.to_numpy()
    span = slice(offsets[0], offsets[-1])
    values = buckets.values.to_numpy()[span], counts.values.to_numpy()[span]
    return Counts((offsets - offsets[0]).astype(np.int64), *values)


def frequencies(
    sketches: Sketches, work: Path, row_of: np.ndarray, features: int
) -> tuple[np.ndarray, Counts]:
    """Return (document frequencies, int64[features]; feature counts of the sampled documents, in
    the order of their rows). `row_of`, int64[documents], is each document's row in the matrix, and
    the first SAMPLE rows are the sample. `work` is a folder for temporary files. The tasks count
    groups of sketch files. The sums are of integers, so the grouping does not change them."""
    tasks, sample_rows = [], []
    for group in groups(sketches, sketches.sizes.task_embeddings):
        rows = row_of[group.first : group.first + group.rows]
        sample = np.flatnonzero(rows < SAMPLE)
        sample_rows.append(rows[sample])
        tasks.append(CountTask(group.part, work, group, features, sample.tolist()))
    run_tasks(sketches.run, f"{__name__}:count_group", _missing(tasks, COUNTS_FILE))
    df = np.zeros(features, np.int64)
    chosen: list[tuple[int, np.ndarray, np.ndarray]] = []
    for task, rows in zip(tasks, sample_rows, strict=True):
        with np.load(task.file(COUNTS_FILE), allow_pickle=False) as arrays:
            df += arrays["df"]
            starts, buckets, counts = (arrays[name] for name in ("offsets", "buckets", "counts"))
        for d, at in enumerate(rows.tolist()):
            span = slice(starts[d], starts[d + 1])
            if span.start < span.stop:
                chosen.append((at, buckets[span], counts[span]))
    chosen.sort(key=lambda row: row[0])
    offsets = np.concatenate([[0], np.cumsum([len(row[1]) for row in chosen])]).astype(np.int64)
    buckets = np.concatenate([np.empty(0, np.uint32), *(row[1] for row in chosen)])
    counts = np.concatenate([np.empty(0, np.uint16), *(row[2] for row in chosen)])
    return df, Counts(offsets, buckets, counts)


# Per group: df: int64[features], and offsets, buckets, counts of its sample; the rows of its
# documents in order of arrival, int16[documents, size].
COUNTS_FILE, ROWS_FILE = "counts.npz", "rows.npy"


@dataclass(frozen=True)
class CountTask(GroupTask):
    """A task to count the features of a group of documents."""

    features: int
    sample: list[int]  # numbers, within the group, of documents in the sample


def count_group(task: CountTask) -> None:
    """Run a CountTask: count the documents with each feature, and save the sampled documents."""
    df = np.zeros(task.features, np.int64)
    sample = np.array(task.sample, np.int64)
    chosen = [Counts(np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0, np.uint16))]
    done = 0
    for batch in _counts(task.group):
        df += np.bincount(batch.buckets, minlength=len(df))
        stop = done + len(batch.offsets) - 1
        for d in sample[np.searchsorted(sample, done) : np.searchsorted(sample, stop)] - done:
            span = slice(batch.offsets[d], batch.offsets[d + 1])
            size = np.array([span.stop - span.start])
            chosen.append(Counts(size, batch.buckets[span].copy(), batch.counts[span].copy()))
        done = stop
    sizes, buckets, counts = (np.concatenate(column) for column in zip(*chosen, strict=True))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    with replacing(task.file(COUNTS_FILE)) as aside, aside.open("wb") as file:
        np.savez(file, df=df, offsets=offsets, buckets=buckets, counts=counts)


@dataclass(frozen=True)
class EmbedTask(GroupTask):
    """A task to compute the vectors of a group of documents."""

    basis: Path  # file of the basis


def group_rows(sketches: Sketches, work: Path, basis: Path) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield (slice of documents in input order, their vectors: int16[documents, size]) per group of
    documents. `basis` is the file of a saved Basis, `work` a folder for temporary files."""
    sketch_groups = groups(sketches, sketches.sizes.task_embeddings)
    tasks = [EmbedTask(group.part, work, group, basis) for group in sketch_groups]
    run_tasks(sketches.run, f"{__name__}:embed_group", _missing(tasks, ROWS_FILE))
    for task in tasks:
        rows = np.load(task.file(ROWS_FILE), allow_pickle=False)
        yield slice(task.group.first, task.group.first + task.group.rows), rows


def embed_group(task: EmbedTask) -> None:
    """Run an EmbedTask: compute and save the vectors of a group."""
    basis, group = Basis.load(task.basis), task.group
    rows = np.empty((group.rows, basis.size), np.int16)
    done = 0
    for batch in _counts(group):
        stop = done + len(batch.offsets) - 1
        rows[done:stop] = whole_numbers(basis.vectors(*batch))
        done = stop
    with replacing(task.file(ROWS_FILE)) as aside, aside.open("wb") as file:
        np.save(file, rows)


def _counts(group: Group) -> Iterator[Counts]:
    for batch in sketch_batches(group.files, ["buckets", "counts"], BATCH):
        yield counts_of(batch)


def _missing(tasks: Sequence[T], name: str) -> list[T]:
    return [task for task in tasks if not task.file(name).exists()]


MATRIX, BASIS = "embeddings.npy", "basis.npz"
WORK = "work"  # files of tasks, removed when the matrix is written


def hashed_basis(
    sketches: Sketches,
    row_of: np.ndarray,
    features: int,
    dimensions: int,
    residual: int,
    seed: int,
) -> Basis:
    """Return the basis (the weights and axes of vectors). Read it from `sketches.folder` if there.
    If not, take the basis of the first earlier corpus in `sketches.earlier` that has a basis, or
    fit a new basis, and save it in `sketches.folder`."""
    file = sketches.folder / BASIS
    if file.exists():
        return Basis.load(file)
    earlier = [path for _, folder in sketches.earlier if (path := folder / file.name).exists()]
    if earlier:
        basis = Basis.load(earlier[0])
    else:
        df, sample = frequencies(sketches, _work(sketches), row_of, features)
        basis = fit(df, len(row_of), sample, dimensions, residual, seed)
    basis.save(file)
    return basis


def _work(sketches: Sketches) -> Path:
    work = sketches.folder / WORK
    work.mkdir(exist_ok=True)
    clear_temporary(work)
    return work


def _stored_rows(sketches: Sketches) -> Iterator[tuple[slice, np.ndarray]]:
    done = 0
    for batch in sketches.batches(["vector"], BATCH):
        column = batch.column("vector")
        size = column.type.list_size
        flat = np.zeros((len(batch), size), np.float32)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        flat[valid] = column.drop_null().flatten().to_numpy().reshape(-1, size)
        yield slice(done, done + len(batch)), whole_numbers(flat)
        done += len(batch)


def write_matrix(sketches: Sketches, row_of: np.ndarray, basis: Basis | None, size: int) -> Path:
    """Write embeddings.npy, int16[documents, size], if it is missing. `row_of` is int64[documents],
    the row of each document in input order. `basis` is None if the sketches are vectors already."""
    path = sketches.folder / MATRIX
    if not path.exists():
        rows = _stored_rows(sketches)
        if basis is not None:
            rows = group_rows(sketches, _work(sketches), sketches.folder / BASIS)
        with replacing(path) as aside:
            shape = (len(row_of), size)
            matrix = np.lib.format.open_memmap(aside, "w+", np.int16, shape)
            allocate(aside)
            for span, block in rows:
                matrix[row_of[span]] = block
            matrix.flush()
            del matrix
    journal.release(sketches.folder / WORK)
    remove(sketches.folder / WORK, inside=sketches.folder)
    return path
