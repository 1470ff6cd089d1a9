"""Embeddings of a checkpoint for a tokenizer with other tokens: rows added, or rows taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenize_kit.change.tensors import Checkpoint, narrowed, widened, write_tensors
from tokenize_kit.errors import TokenizerError

# How published models call their tables, at the end of a tensor's name.
INPUT = (
    "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight",
    "embed_in.weight", "shared.weight", "embedding.weight",
)  # fmt: skip
OUTPUT = ("lm_head.weight", "embed_out.weight", "output.weight", "head.weight")
FILE = "embeddings.safetensors"
_ROWS = 8192  # widened at once


@dataclass(frozen=True)
class Table:
    """A table of embeddings. role: input or output; stored: [rows, width] as in the file."""

    name: str
    role: str
    stored: np.ndarray
    kind: str


def read_tables(path: Path, names: Sequence[str], vocabulary: int) -> list[Table]:
    """The tables of a checkpoint: those named, input first, or found by how models call them.

    vocabulary: rows that a table has at least. Raises TokenizerError where none or several fit.
    """
    checkpoint = Checkpoint(path)
    if len(names) > 2:
        raise TokenizerError("tensor: give two at most, input and output", exit_code=2)
    if names:
        found = list(zip(names, ("input", "output"), strict=False))
    else:
        found = []
        for role, ends in (("input", INPUT), ("output", OUTPUT)):
            fit = [n for n in checkpoint.names if n.endswith(ends) and _stands(n, ends)]
            if len(fit) > 1:
                raise TokenizerError(
                    f"{path}: {' and '.join(fit)} may be {role} embeddings: name them (--tensor)",
                    exit_code=2,
                )
            found += [(name, role) for name in fit]
        if not any(role == "input" for _, role in found):
            raise TokenizerError(
                f"{path}: no tensor is called as input embeddings are: name it (--tensor)",
                exit_code=2,
            )
    tables = [Table(n, role, checkpoint.matrix(n), checkpoint.kind(n)) for n, role in found]
    for table in tables:
        if len(table.stored) < vocabulary:
            raise TokenizerError(
                f"{path}: {table.name} has {len(table.stored):,} rows, the tokenizer ids up to"
                f" {vocabulary - 1:,}: it is of another tokenizer",
                exit_code=2,
            )
    return tables


def _stands(name: str, ends: tuple[str, ...]) -> bool:
    """Whether one of the endings is the whole of a name's last parts: not `overhead.weight`."""
    return any(name == end or name.endswith(f".{end}") for end in ends)


def tied(tables: Sequence[Table]) -> bool:
    """Whether input and output embeddings are the same: one table, or one that is stored twice."""
    return len(tables) == 1 or np.array_equal(tables[0].stored, tables[1].stored)


def extended(
    table: Table, vocabulary: int, parts: Sequence[Sequence[int]], how: str, seed: int
) -> np.ndarray:
    """The table with a row for every new token, as stored.

    parts: the old ids that each new token was; they take ids from `vocabulary` on. Rows that the
    table has beyond its vocabulary are taken first; it grows where they are too few.
    how: `mean` of the rows of a token's parts; or `random`, drawn from the normal distribution
    with the mean and the covariance of the old rows (Hewitt 2021), by seed.
    """
    if how == "mean":
        means = [widened(table.stored[list(ids)]).mean(0, dtype=np.float64) for ids in parts]
        rows = np.array(means, np.float32)
    else:
        rows = _drawn(table.stored[:vocabulary], len(parts), seed)
    stored = narrowed(rows, table.kind)
    total = max(len(table.stored), vocabulary + len(parts))
    out = np.zeros((total, table.stored.shape[1]), table.stored.dtype)
    out[: len(table.stored)] = table.stored
    out[vocabulary : vocabulary + len(parts)] = stored
    return out


def _drawn(stored: np.ndarray, count: int, seed: int) -> np.ndarray:
    """float32[count, width]: rows of the normal distribution with mean and covariance of others."""
    blocks = [stored[first : first + _ROWS] for first in range(0, len(stored), _ROWS)]
    middle = sum(widened(block).sum(0, dtype=np.float64) for block in blocks) / len(stored)
    covariance = np.zeros((stored.shape[1], stored.shape[1]))
    for block in blocks:
        away = widened(block) - middle.astype(np.float32)
        covariance += away.T @ away
    covariance /= len(stored)
    if not np.isfinite(covariance).all():
        raise TokenizerError("the embeddings hold NaN or infinity: nothing is drawn like them")
    # So much more on the diagonal that fewer rows than columns have a root, too.
    covariance[np.diag_indices_from(covariance)] += 1e-6 * covariance.diagonal().mean() + 1e-30
    root = np.linalg.cholesky(covariance)
    draw = np.random.default_rng(seed).standard_normal((count, stored.shape[1]))
    return (draw @ root.T + middle).astype(np.float32)


def write_extended(
    tables: Sequence[Table], out: Path, vocabulary: int, parts: Sequence[Sequence[int]],
    how: str, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """OUT/embeddings.safetensors with all tables, and what the card says of them.

    Tied tables get the same rows. Where they are not tied, the output's are drawn anew.
    """
    same = tied(tables)
    found = {}
    for number, table in enumerate(tables):
        if not same or not number:
            rows = extended(table, vocabulary, parts, how, seed + number)
        found[table.name] = (rows, table.kind)
    write_tensors(out / FILE, found)
    return _about(tables, same) | {
        "init": how,
        "seed": seed if how == "random" else None,
        "rows": {name: len(rows) for name, (rows, _) in found.items()},
    }


def write_cut(tables: Sequence[Table], out: Path, kept: np.ndarray) -> dict[str, Any]:
    """OUT/embeddings.safetensors with the rows of kept ids alone, in order of their new ids."""
    found = {table.name: (table.stored[kept], table.kind) for table in tables}
    write_tensors(out / FILE, found)
    rows = {name: len(stored) for name, (stored, _) in found.items()}
    return _about(tables, tied(tables)) | {"rows": rows}


def _about(tables: Sequence[Table], same: bool) -> dict[str, Any]:
    return {
        "file": FILE,
        "tensors": {table.role: table.name for table in tables},
        "tied": same,
    }
