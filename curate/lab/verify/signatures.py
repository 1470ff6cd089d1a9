"""Check of `dedup_minhash` with datasketch: signatures, candidate pairs and decisions of a sample.

The run's own functions hash the shingles. datasketch computes permutations, minima, bands and the
pairs that share a band (MinHash in its current scheme, and MinHashLSH).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np
import pyarrow as pa

from curate.corpus import indexes
from curate.dedup.minhash.near_duplicates import DedupMinhash
from curate.lab.verify.finished_run import (
    Decision,
    FinishedRun,
    Row,
    drawn_rows,
    index_of,
    own_files,
    rows_of,
)
from curate.lab.verify.tally import Tally

_MASK = (1 << 64) - 1
_PRIME = 0x9E3779B97F4A7C15
_CLOSE = 1e-9  # similarities are quotients of integers


@dataclass(frozen=True)
class Signed:
    """A document with two MinHash sketches: one stored by the run, one computed by datasketch."""

    id: str
    bands: list[int]  # band keys that the run stored
    values: np.ndarray  # signature that datasketch computes
    shingles: frozenset[int]  # their hashes
    peer: Any  # MinHash object of datasketch


def check(run: FinishedRun) -> list[Tally]:
    steps = run.need(DedupMinhash)
    tallies = []
    for step in steps:
        index = index_of(run, step)
        documents = list(_signed(run, step, index))
        names = [document.id for document in documents]
        decisions = {row.id: row for row in run.decisions_on(step.method, names)}
        tallies += [
            _signatures(step, documents),
            *_pairs(step, documents, decisions),
        ]
    return tallies


def _signed(run: FinishedRun, step: DedupMinhash, index: indexes.Index) -> Iterator[Signed]:
    ids: set[str] = set()
    for decision in run.drawn_decisions(step.method, max(1, run.documents // 4)):
        ids |= {decision.id, decision.partner_id or "", decision.kept_id or ""}
    files, columns = own_files(index), ["bands"]
    rows: dict[int, dict[int, Any]] = {}
    others = max(1, run.documents // 2)
    for file, row in chain(
        rows_of(files, ids, columns), drawn_rows(run, files, columns, others, ids)
    ):
        rows.setdefault(file.part, {})[row["n"]] = row
    for part, of_part in sorted(rows.items()):
        texts = run.stage_texts(step.label, part, set(of_part))
        for number in sorted(of_part.keys() & texts.keys()):
            yield _sign(step, of_part[number], texts[number])


def _sign(step: DedupMinhash, row: Row, text: str) -> Signed:
    from datasketch import MinHash

    bands, rows = step.banding
    _, hashes = step.shingles(pa.array([text], pa.large_string()))
    peer = MinHash(bands * rows, step.seed, hashfunc=lambda value: value)
    peer.update_batch([int(value) & 0xFFFFFFFF for value in hashes])
    stored = np.frombuffer(row["bands"] or b"", np.uint64).tolist()
    return Signed(
        row["id"],
        stored,
        peer.hashvalues,
        frozenset(hashes.tolist()),
        peer,
    )


# Band keys, as defined in dedup/minhash/kernels.py.


def _mix(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ (value >> 33)


def band_keys(values: np.ndarray, bands: int, rows: int) -> list[int]:
    keys = []
    for band in range(bands):
        key = (band + 1) * _PRIME & _MASK
        for value in values[band * rows : (band + 1) * rows].tolist():
            key = (key ^ value) * _PRIME & _MASK
            key ^= key >> 31
        keys.append(_mix(key))
    return keys


def _signatures(step: DedupMinhash, documents: list[Signed]) -> Tally:
    tally = Tally("datasketch", f"{step.label}: signatures")
    bands, rows = step.banding
    for document in documents:
        keys = band_keys(document.values, bands, rows) if document.shingles else []
        if keys == document.bands:
            tally.agrees()
        else:
            equal = sum(a == b for a, b in zip(keys, document.bands, strict=False))
            tally.differs(document.id, f"{equal} of {bands} bands equal those of datasketch")
    return tally


def _pairs(
    step: DedupMinhash, documents: list[Signed], decisions: dict[str, Decision]
) -> list[Tally]:
    from datasketch import MinHashLSH

    pairs = Tally("datasketch", f"{step.label}: candidate pairs")
    decided = Tally("datasketch", f"{step.label}: decisions")
    bands, rows = step.banding
    signed = {document.id: document for document in documents if document.shingles}
    lsh = MinHashLSH(num_perm=bands * rows, params=(bands, rows))
    for document in signed.values():
        lsh.insert(document.id, document.peer)
    theirs = {
        tuple(sorted((name, other)))
        for name, document in signed.items()
        for other in lsh.query(document.peer)
        if other != name
    }
    ours = set()
    by_band: dict[tuple[int, int], list[str]] = {}
    for name, document in signed.items():
        for place in enumerate(document.bands):
            by_band.setdefault(place, []).append(name)
    for names in by_band.values():
        ours |= {tuple(sorted(pair)) for pair in combinations(names, 2)}
    for pair in sorted(ours | theirs):
        item = " and ".join(pair)
        if pair in ours and pair in theirs:
            pairs.agrees()
        else:
            finder = "the run" if pair in ours else "datasketch"
            pairs.differs(item, f"share a band only according to {finder}")
    for a, b in sorted(theirs):
        _check_pair(step, decided, signed[a], signed[b], decisions)
    for name, document in signed.items():
        row = decisions.get(name)
        if row is not None and row.partner_id:
            _similarity(step, decided, document, signed, row)
    return [pairs, decided]


def _is_kept(name: str, decisions: dict[str, Decision]) -> bool:
    row = decisions.get(name)
    return row is None or row.kept_id == name


def _check_pair(
    step: DedupMinhash, tally: Tally, a: Signed, b: Signed, decisions: dict[str, Decision]
) -> None:
    if step.verify is not None:
        if len(a.shingles & b.shingles) < step.verify * len(a.shingles | b.shingles):
            return  # not similar enough: `_similarity` compares these
        if _is_kept(a.id, decisions) and _is_kept(b.id, decisions):
            tally.explain("not_compared")
            return
    if _is_kept(a.id, decisions) and _is_kept(b.id, decisions):
        tally.differs(f"{a.id} and {b.id}", "share a band, and both were kept")
    else:
        tally.agrees()


def _similarity(
    step: DedupMinhash, tally: Tally, document: Signed, signed: dict[str, Signed], row: Decision
) -> None:
    partner = signed.get(row.partner_id or "")
    if partner is None:
        if row.partner_corpus:
            tally.explain("earlier_corpus")
        return  # else the partner is not in the sample
    stored = row.similarity or 0.0
    bands, rows = step.banding
    equal = document.values == partner.values
    if step.verify is None:
        shared = int(equal.reshape(bands, rows).all(axis=1).sum())
        counted = round(stored**rows * bands, 6)
        if abs(counted - shared) <= 1e-6:
            tally.agrees()
        elif counted == int(counted) and 1 <= counted < shared:
            tally.explain("counted_bands")
        else:
            tally.differs(
                document.id, f"shares {counted:g} bands, according to datasketch {shared}"
            )
        return
    both = document.shingles & partner.shingles
    theirs = len(both) / len(document.shingles | partner.shingles)
    if abs(stored - theirs) > _CLOSE:
        tally.differs(document.id, f"similarity {stored:.6f}, datasketch {theirs:.6f}")
    elif stored < step.verify:
        tally.differs(document.id, f"similarity {stored:.6f} is below {step.verify}")
    else:
        tally.agrees()
