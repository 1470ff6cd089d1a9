"""Embeddings of a checkpoint for a tokenizer with other tokens: rows added, or rows taken out."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from tokenize_kit.card import Sample
from tokenize_kit.change.verify import Encode, Texts

TEXT_BYTES = 8 << 20  # of text at most, drawn by hash
_WINDOW = 5  # tokens to either side, as fastText's
_DIMENSIONS = 100
_SMOOTHING = 0.75  # of the counts of contexts (Levy et al. 2015, section 3.2)
_OVERSAMPLED = 10
_BLOCK = 512  # new tokens at once


def drawn(batches: Texts, size: int = TEXT_BYTES) -> Sample:
    """A sample of texts that no order of them changes."""
    sample = Sample(most=size)
    for data, offsets in batches():
        sample.add_rows(data, offsets)
    return sample


def focus(
    encode: Encode,
    size: int,
    batches: Texts,
    new: np.ndarray,
    known: np.ndarray,
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """New ids to (positions in `known`, weights: float64[], which sum to one); those that the texts
    do not have are left out.

    encode, size: of the new tokenizer; new, known: int64[], its ids without and with an embedding.
    """
    vectors = token_vectors(*encode(*drawn(batches).buffers()), size)
    here = np.linalg.norm(vectors, axis=1) > 0
    usable = np.flatnonzero(here[known])
    asked = new[here[new]]
    blends: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for first in range(0, len(asked), _BLOCK) if len(usable) else ():
        block = asked[first : first + _BLOCK]
        weights = sparsemax(vectors[block] @ vectors[known[usable]].T)
        for number, row in zip(block.tolist(), weights, strict=True):
            positions = np.flatnonzero(row)
            blends[number] = usable[positions], row[positions]
    return blends


def token_vectors(ids: np.ndarray, sizes: np.ndarray, size: int) -> np.ndarray:
    """float64[size, up to 100]: vectors of length one, zero for tokens that do not come up.

    ids: of all texts, one after the other; sizes: how many each has; size: ids there are.
    """
    from scipy.sparse import coo_array

    text = np.repeat(np.arange(len(sizes)), sizes)
    tokens = ids.astype(np.int64)
    pairs = []
    for distance in range(1, min(_WINDOW, len(ids) - 1) + 1):
        together = text[distance:] == text[:-distance]
        pairs.append(tokens[:-distance][together] * size + tokens[distance:][together])
    keys, counts = np.unique(np.concatenate(pairs or [np.zeros(0, np.int64)]), return_counts=True)
    left, right = np.divmod(keys, size)
    near = coo_array((counts.astype(np.float64), (left, right)), (size, size)).tocsr()
    near = (near + near.T).tocoo()
    total = near.sum(axis=1)
    context = total**_SMOOTHING
    if not total.any():
        return np.zeros((size, 1))
    ratio = near.data / total[near.row] / (context[near.col] / context.sum())
    near.data = np.maximum(np.log(ratio), 0)
    vectors = _left_vectors(near.tocsr(), min(_DIMENSIONS, int((total > 0).sum())))
    vectors[total == 0] = 0
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 1e-12)


def _left_vectors(matrix: Any, rank: int) -> np.ndarray:
    """float64[rows, rank]: left singular vectors times the roots of their values (Halko et al.
    2011, algorithm 4.4, two turns)."""
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((matrix.shape[1], min(rank + _OVERSAMPLED, matrix.shape[1])))
    for _ in range(2):
        basis = np.linalg.qr(matrix.T @ np.linalg.qr(matrix @ basis)[0])[0]
    left, values, _ = np.linalg.svd(matrix @ basis, full_matrices=False)
    return np.asarray(left[:, :rank] * np.sqrt(values[:rank]))


def sparsemax(scores: np.ndarray) -> np.ndarray:
    """The nearest point of the simplex to each row of scores: float64[rows, n] (Martins and
    Astudillo 2016, algorithm 1); most of what it gives is zero."""
    ordered = -np.sort(-scores, axis=1)
    sums = np.cumsum(ordered, axis=1)
    ranks = np.arange(1, scores.shape[1] + 1)
    support = (1 + ranks * ordered > sums).sum(axis=1)
    threshold = (sums[np.arange(len(scores)), support - 1] - 1) / support
    return np.asarray(np.maximum(scores - threshold[:, None], 0))


# The safetensors format (huggingface/safetensors, README): eight bytes little-endian, the size of a
# JSON header; the header, name to dtype, shape and offsets; the data. Numbers are float32, float16
# or bfloat16.

_SIZES = {"F32": 4, "F16": 2, "BF16": 2}
_MOST_HEADER = 100 << 20  # as the library's own limit


@dataclass(frozen=True)
class _Tensor:
    dtype: str
    shape: list[int]
    data_offsets: list[int]


class Checkpoint:
    """The tensors of a file, or of all safetensors files of a folder.

    Raises LlmcurateError naming the file where it is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        if not files or not files[0].is_file():
            raise UsageError(f"{path}: no safetensors file")
        self._positions: dict[str, tuple[Path, int, _Tensor]] = {}
        for file in files:
            start, header = _header(file)
            for name, about in header.items():
                self._positions[name] = (file, start, about)

    @property
    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._positions)

    def kind(self, name: str) -> str:
        """The dtype of a tensor as the file spells it."""
        return self._positions[name][2].dtype

    def matrix(self, name: str) -> np.ndarray:
        """Rows as float32[rows, width], or as uint16 for bfloat16 (`widened` makes it float32)."""
        if name not in self._positions:
            raise UsageError(f"{self.path}: no tensor {name!r}")
        file, start, about = self._positions[name]
        kind, shape, (a, z) = about.dtype, about.shape, about.data_offsets
        if kind not in _SIZES or len(shape) != 2:
            raise UsageError(
                f"{file}: {name} is {kind} of shape {shape}; embeddings are matrices of"
                f" {', '.join(_SIZES)}"
            )
        if z - a != shape[0] * shape[1] * _SIZES[kind]:
            raise UsageError(f"{file}: {name} is not as long as its shape says")
        stored = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[kind]
        with file.open("rb") as opened:
            opened.seek(start + a)
            flat = np.fromfile(opened, stored, shape[0] * shape[1])
        return flat.reshape(shape)


def _header(file: Path) -> tuple[int, dict[str, _Tensor]]:
    """(where data begins, tensors by name)."""
    size = file.stat().st_size
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if not 2 <= length <= min(_MOST_HEADER, size - 8):
                raise ValueError("a header of no sense")
            header = json.loads(opened.read(length))
        header.pop("__metadata__", None)
        tensors = {name: _Tensor(**about) for name, about in header.items()}
        for tensor in tensors.values():
            a, z = tensor.data_offsets
            if not 0 <= a <= z <= size - 8 - length or not all(n >= 0 for n in tensor.shape):
                raise ValueError("data that is not in the file")
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise UsageError(
            f"{file}: not a whole safetensors file ({str(error) or 'cut short'})"
        ) from None
    return 8 + length, tensors


def as_float32(stored: np.ndarray) -> np.ndarray:
    """Stored numbers as float32."""
    if stored.dtype == np.uint16:  # bfloat16 is the upper half of a float32
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def as_stored(values: np.ndarray, kind: str) -> np.ndarray:
    """float32 as a dtype stores it, rounded to the nearest, halves to even."""
    if kind == "BF16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return values.astype({"F32": "<f4", "F16": "<f2"}[kind])


def write_tensors(path: Path, tensors: dict[str, tuple[np.ndarray, str]]) -> None:
    """A safetensors file of matrices; each as stored, with its dtype."""
    header: dict[str, dict[str, str] | _Tensor] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (stored, kind) in tensors.items():
        shape = list(stored.shape)
        header[name] = _Tensor(kind, shape, [at, at + stored.nbytes])
        at += stored.nbytes
    text = json.dumps(header, separators=(",", ":"), default=asdict).encode()
    text += b" " * (-len(text) % 8)
    data = [np.ascontiguousarray(stored).data.cast("B") for stored, _ in tensors.values()]
    write_atomic(path, struct.pack("<Q", len(text)), text, *data)


# Names that published models give to their tables, at the end of a tensor's name.
INPUT = (
    "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight",
    "embed_in.weight", "shared.weight", "embedding.weight",
)  # fmt: skip
OUTPUT = ("lm_head.weight", "embed_out.weight", "output.weight", "head.weight")
FILE = "embeddings.safetensors"


@dataclass(frozen=True)
class PrunedEmbeddings:
    """What a card says of embeddings: tensors by their role, and the rows of each; tied: whether
    they are the same."""

    file: str
    tensors: dict[str, str]
    tied: bool
    rows: dict[str, int]


@dataclass(frozen=True)
class ExtendedEmbeddings:
    """The same with new rows, how these began, and the seed of random ones."""

    file: str
    tensors: dict[str, str]
    tied: bool
    init: str
    seed: int | None
    rows: dict[str, int]


_ROWS = 8192  # widened at once


@dataclass(frozen=True)
class Table:
    """A table of embeddings. role: input or output; stored: [rows, width] as in the file."""

    name: str
    role: str
    stored: np.ndarray
    kind: str


def read_tables(path: Path, names: Sequence[str], vocabulary: int) -> list[Table]:
    """The tables of a checkpoint: those named, input first, or those with the usual names of
    models.

    vocabulary: rows that a table has at least. Raises LlmcurateError where none or several fit.
    """
    checkpoint = Checkpoint(path)
    if len(names) > 2:
        raise UsageError("tensor: give two at most, input and output")
    if names:
        chosen = list(zip(names, ("input", "output"), strict=False))
    else:
        chosen = []
        for role, ends in (("input", INPUT), ("output", OUTPUT)):
            # The ending is the whole of a name's last parts: not `overhead.weight`.
            fit = [n for n in checkpoint.names if f".{n}".endswith(tuple(f".{e}" for e in ends))]
            if len(fit) > 1:
                raise UsageError(
                    f"{path}: {' and '.join(fit)} may be {role} embeddings: name them (--tensor)"
                )
            chosen += [(name, role) for name in fit]
        if not any(role == "input" for _, role in chosen):
            raise UsageError(
                f"{path}: no tensor is called as input embeddings are: name it (--tensor)"
            )
    tables = [Table(n, role, checkpoint.matrix(n), checkpoint.kind(n)) for n, role in chosen]
    for table in tables:
        if len(table.stored) < vocabulary:
            raise UsageError(
                f"{path}: {table.name} has {counted(len(table.stored), 'row')}, the tokenizer"
                " ids up to"
                f" {vocabulary - 1:,}: it is of another tokenizer"
            )
    return tables


def are_tied(tables: Sequence[Table]) -> bool:
    """Whether input and output embeddings are the same: one table, or one that is stored twice."""
    return len(tables) == 1 or np.array_equal(tables[0].stored, tables[1].stored)


# Of a new token: old ids, and the weights of their rows: float64[], or None for their mean.
Blend = tuple[Sequence[int] | np.ndarray, np.ndarray | None]


def new_rows(stored: np.ndarray, blends: Sequence[Blend], how: str, seed: int) -> np.ndarray:
    """float32[new tokens, width]: the first rows of new tokens.

    stored: the rows of the old vocabulary. how: `random`, drawn from the normal distribution with
    the mean and the covariance of the old rows (Hewitt 2021), by seed; in all others the blend of
    old rows that each token has.
    """
    if how == "random":
        return _draw_rows(stored, len(blends), seed)
    rows = np.empty((len(blends), stored.shape[1]), np.float32)
    for row, (ids, weights) in zip(rows, blends, strict=True):
        parts = as_float32(stored[np.asarray(ids)])
        row[:] = parts.mean(0, dtype=np.float64) if weights is None else weights @ parts
    return rows


def extend_table(
    table: Table, vocabulary: int, parts: Sequence[Blend], how: str, seed: int
) -> np.ndarray:
    """The table with a row for every new token, as stored.

    parts: what `new_rows` makes each of; they take ids from `vocabulary` on. Rows that the table
    has beyond its vocabulary are taken first; it grows where they are too few.
    """
    stored = as_stored(new_rows(table.stored[:vocabulary], parts, how, seed), table.kind)
    total = max(len(table.stored), vocabulary + len(parts))
    out = np.zeros((total, table.stored.shape[1]), table.stored.dtype)
    out[: len(table.stored)] = table.stored
    out[vocabulary : vocabulary + len(parts)] = stored
    return out


def _draw_rows(stored: np.ndarray, count: int, seed: int) -> np.ndarray:
    """float32[count, width]: rows of the normal distribution with mean and covariance of others."""
    blocks = [stored[first : first + _ROWS] for first in range(0, len(stored), _ROWS)]
    middle = sum(as_float32(block).sum(0, dtype=np.float64) for block in blocks) / len(stored)
    covariance = np.zeros((stored.shape[1], stored.shape[1]))
    for block in blocks:
        away = as_float32(block) - middle.astype(np.float32)
        covariance += away.T @ away
    covariance /= len(stored)
    if not np.isfinite(covariance).all():
        raise RunFailed("the embeddings hold NaN or infinity: nothing is drawn like them")
    # So much more on the diagonal that fewer rows than columns have a root, too.
    covariance[np.diag_indices_from(covariance)] += 1e-6 * covariance.diagonal().mean() + 1e-30
    root = np.linalg.cholesky(covariance)
    draw = np.random.default_rng(seed).standard_normal((count, stored.shape[1]))
    return (draw @ root.T + middle).astype(np.float32)


def write_extended(
    tables: Sequence[Table], out: Path, vocabulary: int, parts: Sequence[Blend],
    how: str, seed: int,
) -> ExtendedEmbeddings:  # fmt: skip
    """OUT/embeddings.safetensors with all tables, and what the card says of them.

    Tied tables get the same rows. Where they are not tied, the output's are drawn anew.
    """
    same = are_tied(tables)
    tensors = {}
    for number, table in enumerate(tables):
        if not same or not number:
            rows = extend_table(table, vocabulary, parts, how, seed + number)
        tensors[table.name] = (rows, table.kind)
    write_tensors(out / FILE, tensors)
    counts = {name: len(rows) for name, (rows, _) in tensors.items()}
    names = {table.role: table.name for table in tables}
    return ExtendedEmbeddings(FILE, names, same, how, seed if how == "random" else None, counts)


def write_pruned(tables: Sequence[Table], out: Path, kept: np.ndarray) -> PrunedEmbeddings:
    """OUT/embeddings.safetensors with the rows of kept ids alone, in order of their new ids."""
    tensors = {table.name: (table.stored[kept], table.kind) for table in tables}
    write_tensors(out / FILE, tensors)
    rows = {name: len(stored) for name, (stored, _) in tensors.items()}
    names = {table.role: table.name for table in tables}
    return PrunedEmbeddings(FILE, names, are_tied(tables), rows)
