"""Embeddings of a checkpoint for a changed tokenizer: rows of tokens are added or removed."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from tokenize_kit.card import Sample
from tokenize_kit.change.verify import Encode, Texts

TEXT_BYTES = 8 << 20  # the most text for focus, drawn by hash
_WINDOW = 5  # tokens to either side, as in fastText
_DIMENSIONS = 100
_SMOOTHING = 0.75  # exponent of the counts of contexts (Levy et al. 2015, section 3.2)
_OVERSAMPLED = 10
_BLOCK = 512  # new tokens at a time


def drawn(batches: Texts, size: int = TEXT_BYTES) -> Sample:
    """Draw a sample of texts that does not depend on their order."""
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
    """Choose known tokens and weights for each new token, whose embedding is to be the weighted
    mean of the known tokens' embeddings. Return {new id: (positions in `known`, weights: float64[],
    with sum 1)}, without ids that the texts lack. encode, size: the new tokenizer's encoder and
    number of ids; new, known: int64[], its ids without and with an old embedding."""
    vectors = token_vectors(*encode(*drawn(batches).buffers()), size)
    has_vector = np.linalg.norm(vectors, axis=1) > 0
    usable = np.flatnonzero(has_vector[known])
    wanted = new[has_vector[new]]
    blends: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for first in range(0, len(wanted), _BLOCK) if len(usable) else ():
        block = wanted[first : first + _BLOCK]
        weights = sparsemax(vectors[block] @ vectors[known[usable]].T)
        for number, row in zip(block.tolist(), weights, strict=True):
            positions = np.flatnonzero(row)
            blends[number] = usable[positions], row[positions]
    return blends


def token_vectors(ids: np.ndarray, sizes: np.ndarray, size: int) -> np.ndarray:
    """Return float64[size, up to 100]: a unit vector for each token, computed from its neighbours
    in the texts; zero for tokens that do not occur. ids: the ids of all texts, concatenated; sizes:
    the number of ids per text; size: the number of ids in the vocabulary."""
    from scipy.sparse import coo_array

    text = np.repeat(np.arange(len(sizes)), sizes)
    tokens = ids.astype(np.int64)
    pairs = []
    for distance in range(1, min(_WINDOW, len(ids) - 1) + 1):
        same_text = text[distance:] == text[:-distance]
        pairs.append(tokens[:-distance][same_text] * size + tokens[distance:][same_text])
    keys, counts = np.unique(np.concatenate(pairs or [np.zeros(0, np.int64)]), return_counts=True)
    left, right = np.divmod(keys, size)
    joint = coo_array((counts.astype(np.float64), (left, right)), (size, size)).tocsr()
    joint = (joint + joint.T).tocoo()
    total = joint.sum(axis=1)
    context = total**_SMOOTHING
    if not total.any():
        return np.zeros((size, 1))
    ratio = joint.data / total[joint.row] / (context[joint.col] / context.sum())
    joint.data = np.maximum(np.log(ratio), 0)
    vectors = _left_vectors(joint.tocsr(), min(_DIMENSIONS, int((total > 0).sum())))
    vectors[total == 0] = 0
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 1e-12)


def _left_vectors(matrix: Any, rank: int) -> np.ndarray:
    """Return float64[rows, rank]: the left singular vectors times the square roots of the singular
    values (Halko et al. 2011, algorithm 4.4, two iterations)."""
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((matrix.shape[1], min(rank + _OVERSAMPLED, matrix.shape[1])))
    for _ in range(2):
        basis = np.linalg.qr(matrix.T @ np.linalg.qr(matrix @ basis)[0])[0]
    left, values, _ = np.linalg.svd(matrix @ basis, full_matrices=False)
    return np.asarray(left[:, :rank] * np.sqrt(values[:rank]))


def sparsemax(scores: np.ndarray) -> np.ndarray:
    """Return, for each row of scores: float64[rows, n], the nearest vector of values >= 0 with sum
    1 (Martins and Astudillo 2016, algorithm 1). Most of its values are zero."""
    ordered = -np.sort(-scores, axis=1)
    sums = np.cumsum(ordered, axis=1)
    ranks = np.arange(1, scores.shape[1] + 1)
    support = (1 + ranks * ordered > sums).sum(axis=1)
    threshold = (sums[np.arange(len(scores)), support - 1] - 1) / support
    return np.asarray(np.maximum(scores - threshold[:, None], 0))


# The safetensors format (huggingface/safetensors, README): the size of the header as eight bytes,
# little-endian; a JSON header of name to dtype, shape and offsets; the data. Supported numbers are
# float32, float16 and bfloat16.

_SIZES = {"F32": 4, "F16": 2, "BF16": 2}
_MOST_HEADER = 100 << 20  # the library's limit


@dataclass(frozen=True)
class _Tensor:
    dtype: str
    shape: list[int]
    data_offsets: list[int]


class Checkpoint:
    """The tensors of a safetensors file, or of all safetensors files in a folder. Raises
    LlmcurateError naming a file that is not a valid safetensors file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        if not files or not files[0].is_file():
            raise UsageError(f"{path}: no safetensors file")
        self._positions: dict[str, tuple[Path, int, _Tensor]] = {}
        for file in files:
            start, header = _header(file)
            for name, tensor in header.items():
                self._positions[name] = (file, start, tensor)

    @property
    def names(self) -> list[str]:
        return sorted(self._positions)

    def kind(self, name: str) -> str:
        return self._positions[name][2].dtype

    def biases(self, rows: int) -> list[str]:
        """Return the names of output layers' bias tensors with `rows` elements, one per token."""
        shapes = {name: self._positions[name][2].shape for name in self.names}
        fit = [name for name, shape in shapes.items() if shape in ([rows], [1, rows])]
        return [name for name in fit if name.endswith("bias") and not _OTHER_BIAS.search(name)]

    def matrix(self, name: str) -> np.ndarray:
        """Return a tensor as float32, float16 or, for bfloat16, uint16 (see as_float32). A vector
        becomes a matrix of one column."""
        if name not in self._positions:
            raise UsageError(f"{self.path}: no tensor {name!r}")
        file, start, tensor = self._positions[name]
        kind, shape, (a, z) = tensor.dtype, tensor.shape, tensor.data_offsets
        shape = shape if len(shape) != 1 else [*shape, 1]
        if kind not in _SIZES or len(shape) != 2:
            raise UsageError(
                f"{file}: {name} is {kind} of shape {shape}; embeddings are matrices of"
                f" {', '.join(_SIZES)}"
            )
        if z - a != shape[0] * shape[1] * _SIZES[kind]:
            raise UsageError(f"{file}: the size of {name} does not match its shape")
        stored = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[kind]
        with file.open("rb") as opened:
            opened.seek(start + a)
            flat = np.fromfile(opened, stored, shape[0] * shape[1])
        return flat.reshape(shape)


def _header(file: Path) -> tuple[int, dict[str, _Tensor]]:
    size = file.stat().st_size
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if not 2 <= length <= min(_MOST_HEADER, size - 8):
                raise ValueError("invalid header size")
            header = json.loads(opened.read(length))
        header.pop("__metadata__", None)
        tensors = {name: _Tensor(**tensor) for name, tensor in header.items()}
        for tensor in tensors.values():
            a, z = tensor.data_offsets
            if not 0 <= a <= z <= size - 8 - length or not all(n >= 0 for n in tensor.shape):
                raise ValueError("offsets outside the file")
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise UsageError(
            f"{file}: not a whole safetensors file ({str(error) or 'cut short'})"
        ) from None
    return 8 + length, tensors


def as_float32(stored: np.ndarray) -> np.ndarray:
    """Convert numbers as stored in a file to float32. uint16 is read as bfloat16."""
    if stored.dtype == np.uint16:  # bfloat16 is the upper half of a float32
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def as_stored(values: np.ndarray, kind: str) -> np.ndarray:
    """Convert float32 to the dtype of a file, rounding to the nearest value and ties to even."""
    if kind == "BF16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return values.astype({"F32": "<f4", "F16": "<f2"}[kind])


def write_tensors(path: Path, tensors: dict[str, tuple[np.ndarray, str]]) -> None:
    """Write a safetensors file of `tensors`: matrices as the file stores them, and their dtypes."""
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


# Endings of the names of tables in published models.
INPUT = (
    "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight",
    "embed_in.weight", "shared.weight", "embedding.weight",
)  # fmt: skip
OUTPUT = (
    "lm_head.weight", "embed_out.weight", "output.weight", "head.weight",
    "predictions.decoder.weight", "lm_head.decoder.weight", "vocab_projector.weight",
)  # fmt: skip
# The bias of the output has a number per token and many names (cls.predictions.bias, lm_head.bias,
# final_logits_bias). It is found by its shape. Other biases of this shape belong to a layer, whose
# names have numbers, or to a dense layer or norm before the output.
_OTHER_BIAS = re.compile(r"\.\d+\.|dense|norm|\bln", re.IGNORECASE)
FILE = "embeddings.safetensors"


@dataclass(frozen=True)
class PrunedEmbeddings:
    """A card's entry on pruned embeddings. tensors: the tensors' names by role (input, output,
    bias); rows: numbers of rows by name; tied: True if input and output embeddings are the same."""

    file: str
    tensors: dict[str, str]
    tied: bool
    rows: dict[str, int]


@dataclass(frozen=True)
class ExtendedEmbeddings(PrunedEmbeddings):
    """A card's entry on extended embeddings. init: how new rows were made (see addition.Rows)."""

    init: str


@dataclass(frozen=True)
class Table:
    """A tensor with a row per token. `role` is input, output or bias. `stored` is [rows, width] of
    the dtype `kind`. `shape` is the shape in the file, with -1 for the number of rows."""

    name: str
    role: str
    stored: np.ndarray
    kind: str
    shape: tuple[int, ...] = (-1, 1)


def read_tables(path: Path, names: Sequence[str], vocabulary: int) -> list[Table]:
    """Read the tables of embeddings in a checkpoint. `names` are those of the tables, input first;
    if empty, tables with usual names are read. Raises LlmcurateError if no tensor or several
    tensors match, or if a table has fewer than `vocabulary` rows."""
    checkpoint = Checkpoint(path)
    if len(names) > 2:
        raise UsageError("tensor: give two at most, input and output")
    if names:
        chosen = list(zip(names, ("input", "output"), strict=False))
    else:
        chosen = []
        for role, ends in (("input", INPUT), ("output", OUTPUT)):
            # Match whole parts of the name, so not `overhead.weight`.
            fit = [n for n in checkpoint.names if f".{n}".endswith(tuple(f".{e}" for e in ends))]
            if len(fit) > 1:
                raise UsageError(
                    f"{path}: {' and '.join(fit)} may be {role} embeddings: name them (--tensor)"
                )
            chosen += [(name, role) for name in fit]
        if not any(role == "input" for _, role in chosen):
            raise UsageError(
                f"{path}: no tensor has a usual name of input embeddings: name it (--tensor)"
            )
    tables = [_table(checkpoint, name, role) for name, role in chosen]
    biases = checkpoint.biases(len(tables[-1].stored))
    tables += [_table(checkpoint, name, f"bias {n}") for n, name in enumerate(biases, 1)]
    for table in tables:
        if len(table.stored) < vocabulary:
            raise UsageError(
                f"{path}: {table.name} has {counted(len(table.stored), 'row')}, but the tokenizer"
                f" has ids up to {vocabulary - 1:,}: give the embeddings of this tokenizer"
            )
    return tables


def _table(checkpoint: Checkpoint, name: str, role: str) -> Table:
    stored = checkpoint.matrix(name)
    if not role.startswith("bias"):
        return Table(name, role, stored, checkpoint.kind(name), (-1, stored.shape[1]))
    shape = (1, -1) if len(stored) == 1 else (-1,)
    return Table(name, role, stored.reshape(-1, 1), checkpoint.kind(name), shape)


def are_tied(tables: Sequence[Table]) -> bool:
    """Return True if input and output embeddings are the same table, or two equal tables."""
    first, *others = tables
    return all(np.array_equal(first.stored, t.stored) for t in others if t.role == "output")


# How a new row is made: old ids, and weights of their rows, float64[], or None for the mean.
Blend = tuple[Sequence[int] | np.ndarray, np.ndarray | None]


def new_rows(stored: np.ndarray, blends: Sequence[Blend]) -> np.ndarray:
    """Return the rows of new tokens: float32[new tokens, width], each a blend of `stored`, the rows
    of the old vocabulary."""
    rows = np.empty((len(blends), stored.shape[1]), np.float32)
    for row, (ids, weights) in zip(rows, blends, strict=True):
        parts = as_float32(stored[np.asarray(ids)])
        row[:] = parts.mean(0, dtype=np.float64) if weights is None else weights @ parts
    return rows


def extend_table(table: Table, vocabulary: int, parts: Sequence[Blend]) -> np.ndarray:
    """Return the table with a row for every new token, as the file stores it. `parts` are the
    blends (means of old rows) of new tokens, whose ids begin at `vocabulary`. If the table already
    has unused rows after those of the vocabulary, these are filled first."""
    stored = as_stored(new_rows(table.stored[:vocabulary], parts), table.kind)
    total = max(len(table.stored), vocabulary + len(parts))
    out = np.zeros((total, table.stored.shape[1]), table.stored.dtype)
    out[: len(table.stored)] = table.stored
    out[vocabulary : vocabulary + len(parts)] = stored
    return out


def write_extended(
    tables: Sequence[Table], out: Path, vocabulary: int, parts: Sequence[Blend], init: str
) -> ExtendedEmbeddings:
    """Write all tables, with rows for the new tokens, to OUT/embeddings.safetensors. Return the
    tables' entry in the new tokenizer's card. init: the name of the way to make new rows."""
    tensors, counts = {}, {}
    for table in tables:
        rows = extend_table(table, vocabulary, parts)
        tensors[table.name] = (rows.reshape(table.shape), table.kind)
        counts[table.name] = len(rows)
    write_tensors(out / FILE, tensors)
    names = {table.role: table.name for table in tables}
    return ExtendedEmbeddings(FILE, names, are_tied(tables), counts, init)


def write_pruned(tables: Sequence[Table], out: Path, kept: np.ndarray) -> PrunedEmbeddings:
    """Write the rows of kept ids to OUT/embeddings.safetensors, in order of their new ids."""
    tensors = {t.name: (t.stored[kept].reshape(t.shape), t.kind) for t in tables}
    write_tensors(out / FILE, tensors)
    rows = {table.name: len(kept) for table in tables}
    names = {table.role: table.name for table in tables}
    return PrunedEmbeddings(FILE, names, are_tied(tables), rows)
