"""What the chosen documents come to, stratum by stratum, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.mix.choose import Chosen, Taking, last_keys
from curate.mix.measure import ROWS, Measured
from curate.table_writer import writing


@dataclass(frozen=True)
class Settled:
    """Of each stratum, int64[strata]. drawn, drawn_size: documents of the epoch that is not whole,
    and their size; copies, amount: of all epochs; taken, unique: documents that are in the mix at
    least once, and their size; bytes: of the text of all copies."""

    drawn: np.ndarray
    drawn_size: np.ndarray
    copies: np.ndarray
    amount: np.ndarray
    taken: np.ndarray
    unique: np.ndarray
    bytes: np.ndarray


def settle(measured: Measured, chosen: Chosen, groups: np.ndarray, marked: Path | None) -> Settled:
    """Counts what is taken. groups: int32[strata], the number of each stratum's group; marked:
    file for a row a document (grp, hash, size, taken)."""
    many = len(chosen.full)
    drawn, drawn_size, drawn_bytes = (np.zeros(many, np.int64) for _ in range(3))
    taking = Taking(chosen)

    def last(number: np.ndarray, base: np.ndarray, size: np.ndarray, length: np.ndarray):
        taken = taking.last(number, last_keys(base, chosen.full[number]))
        np.add.at(drawn, number[taken], 1)
        np.add.at(drawn_size, number[taken], size[taken])
        np.add.at(drawn_bytes, number[taken], length[taken])
        return taken | (chosen.full[number] > 0)

    columns = ["stratum", "key", "size", "bytes"]
    if marked is None:
        for rows in measured.rows(*columns):
            last(*rows)
    else:
        with pq.ParquetFile(measured.path, pre_buffer=False) as file, writing(marked) as writer:
            for batch in file.iter_batches(ROWS, use_threads=False):
                number, base, size, length = (batch[c].to_numpy() for c in columns)
                table = {
                    "grp": pa.array(groups[number], pa.int32()),
                    "hash": batch["hash"],
                    "size": batch["size"],
                    "taken": pa.array(last(number, base, size, length)),
                }
                writer.write(pa.table(table))
    full = chosen.full
    return Settled(
        drawn,
        drawn_size,
        full * measured.documents + drawn,
        full * measured.sizes + drawn_size,
        np.where(full > 0, measured.documents, drawn),
        np.where(full > 0, measured.sizes, drawn_size),
        full * measured.bytes + drawn_bytes,
    )
