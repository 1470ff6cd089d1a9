"""Prepare a mix (measure sources, design the mix, choose documents), print its table, and write it.

Measuring leaves the decoded documents on disk. Each copy of a document is then written to a
temporary file with its position in the mix, and each part of the mix (an output file) is sorted and
written separately. Memory holds one block of rows, and one part per worker.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.manifests import ids_hash, total_ids, write_manifest
from curate.documents.attributes import pack
from curate.mix import table
from curate.mix.design import Key, Strata, check, design, moment
from curate.mix.measure import (
    ROWS,
    EpochPlan,
    Measured,
    PartialEpoch,
    Rows,
    choose,
    keys,
    last_keys,
    measure,
    positions,
    sizes_in,
)
from curate.mix.settings import MixSettings
from curate.mix.sources import EPOCH, SOURCE, Source
from curate.mix.spill import Copy, Hashed, Spill
from curate.mix.table import Amounts, Bucket, Inputs, MixRecord, Overlap, Row
from llmcurate.base.disk.files import remove, text_digest
from llmcurate.base.disk.parquet_writer import writing
from llmcurate.base.disk.process import Threads
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.messages import json_values
from llmcurate.base.terminal import echo, echo_json

if TYPE_CHECKING:
    from curate.steps.contracts import ProductContext


POSITION = "_position"
SLICE = 16 << 20  # bytes of text per row group
MOST_THREADS = 8  # each holds a part in memory


@dataclass
class Layout:
    """The output files of a mix."""

    part_bytes: int  # approximate bytes of text per file
    total: int  # approximate bytes of text in all files
    workers: int = 1  # number of writing threads
    own: frozenset[str] = frozenset()  # columns with a dot in their name that are no attributes

    @property
    def parts(self) -> int:
        return max(1, -(-self.total // self.part_bytes))


def write_mix(
    copy: Copy, measured: Measured, chosen: EpochPlan, layout: Layout, folder: Path
) -> list[dict[str, int | str]]:
    """Write FOLDER/part-*.parquet; return their manifest entries. Removes `copy` after its use."""
    scratch = folder.with_name(f".spill-{folder.name}")
    remove(scratch, inside=folder.parent)
    scratch.mkdir(parents=True)
    spill = Spill(scratch / "mix")
    try:
        _spread(copy, measured, chosen, layout, spill)
        copy.remove()
        spill.close()
        threads = max(1, min(layout.workers, layout.parts, MOST_THREADS))
        with Threads(threads) as pool:
            parts = range(layout.parts)
            return list(pool.map(lambda part: _write_part(spill, part, folder, layout.own), parts))
    finally:
        spill.remove()
        remove(scratch, inside=folder.parent)


def _spread(
    copy: Copy, measured: Measured, chosen: EpochPlan, layout: Layout, spill: Spill
) -> None:
    taking, epochs = PartialEpoch(chosen), chosen.epochs
    measured_rows = Rows(measured.rows("stratum", "key"))
    for run in copy.runs(layout.part_bytes):
        number, key = measured_rows.take(len(run.position))
        rows, epoch, position = _copies(number, key, chosen, taking, epochs)
        part = (position * layout.parts).astype(np.int64)
        order = np.argsort(part, kind="stable")
        bounds = np.searchsorted(part[order], np.arange(layout.parts + 1))
        for to in np.flatnonzero(np.diff(bounds)).tolist():
            of_part = order[bounds[to] : bounds[to + 1]]
            table = run.take(rows[of_part])
            table = table.append_column(EPOCH, pa.array(epoch[of_part], pa.int32()))
            spill.add(to, table.append_column(POSITION, pa.array(position[of_part])))


def _copies(
    number: np.ndarray,
    base: np.ndarray,
    chosen: EpochPlan,
    taking: PartialEpoch,
    epochs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    full, copies = chosen.full[number], []
    for epoch in range(int(full.max(initial=0))):
        rows_of_epoch = np.flatnonzero(full > epoch)
        position = positions(keys(base[rows_of_epoch], epoch), epoch, epochs[number[rows_of_epoch]])
        copies.append((rows_of_epoch, epoch, position))
    key = last_keys(base, full)
    taken = taking.last(number, key)
    for epoch in np.unique(full[taken]).tolist():
        rows_of_epoch = np.flatnonzero(taken & (full == epoch))
        copies.append(
            (
                rows_of_epoch,
                epoch,
                positions(key[rows_of_epoch], epoch, epochs[number[rows_of_epoch]]),
            )
        )
    rows = np.concatenate([np.empty(0, np.int64), *(r for r, _, _ in copies)])
    times = [np.empty(0, np.int32), *(np.full(len(r), e, np.int32) for r, e, _ in copies)]
    return rows, np.concatenate(times), np.concatenate([np.empty(0), *(p for _, _, p in copies)])


def _write_part(spill: Spill, part: int, folder: Path, own: frozenset[str]) -> dict[str, int | str]:
    target = folder / f"part-{part:05d}.parquet"
    rows_of_part, size, ids = spill.rows(part), 0, []
    with writing(target, Hashed) as writer:
        writer.write(pack(spill.empty().drop_columns([POSITION]), own))
        if rows_of_part is not None:
            order = np.argsort(rows_of_part.columns[POSITION].to_numpy(), kind="stable")
            length = rows_of_part.columns["text"].to_numpy()[order]
            cuts = np.flatnonzero(np.diff(np.cumsum(length) // SLICE)) + 1
            for rows in np.split(order, cuts):
                writer.write(pack(rows_of_part.take(rows).drop_columns([POSITION]), own))
            size, ids = int(length.sum()), [rows_of_part.columns["id"]]
    return {
        "name": target.name,
        "text_bytes": size,
        "documents": writer.rows,
        "sha256": writer.sink.sha256.hexdigest(),
        "ids": ids_hash(ids),
    }


@dataclass(frozen=True)
class Totals:
    """The amounts that a mix takes from each stratum (score bucket of a group): int64[strata] each.
    Sizes are in the unit of the mix."""

    drawn: np.ndarray  # documents in the partial epoch
    drawn_size: np.ndarray  # their size
    copies: np.ndarray  # documents in all epochs, repetitions included
    amount: np.ndarray  # their size
    taken: np.ndarray  # documents that are in the mix at least once
    unique: np.ndarray  # their size
    bytes: np.ndarray  # bytes of text, repetitions included


def count_taken(
    measured: Measured, chosen: EpochPlan, groups: np.ndarray, marked: Path | None
) -> Totals:
    """Count the documents that the mix takes from each stratum (the documents of one group and one
    score bucket). `groups` is int32[strata]: the number of each stratum's group. If `marked` is
    given, that file gets a row (grp, hash, size, taken) per document."""
    strata_count = len(chosen.full)
    drawn, drawn_size, drawn_bytes = (np.zeros(strata_count, np.int64) for _ in range(3))
    taking = PartialEpoch(chosen)

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
    return Totals(
        drawn,
        drawn_size,
        full * measured.documents + drawn,
        full * measured.sizes + drawn_size,
        np.where(full > 0, measured.documents, drawn),
        np.where(full > 0, measured.sizes, drawn_size),
        full * measured.bytes + drawn_bytes,
    )


def count_shared(rows: Path, groups: list[str]) -> Overlap:
    """Count the texts that several groups have, by their hashes. `rows` is the file that
    `count_taken` wrote, with the columns grp, hash, size and taken."""
    from llmcurate.base.disk.database import literal, scratch_database

    count = len(groups)
    documents = [[0] * count for _ in groups]
    size = [[0] * count for _ in groups]
    with scratch_database(rows.with_name(".spill-overlap")) as db:
        db.execute(
            f"""CREATE TABLE texts AS
            SELECT hash AS text, grp, count(*) AS n, sum(size)::BIGINT AS s, max(size) AS one,
                   max(size) FILTER (taken) AS best
            FROM read_parquet({literal(rows)}) GROUP BY text, grp"""
        )
        pairs = db.execute(
            """WITH shared AS (
                 SELECT * FROM texts WHERE text IN (
                   SELECT text FROM texts GROUP BY text HAVING count(*) > 1))
            SELECT a.grp, b.grp, sum(a.n)::BIGINT, sum(a.s)::BIGINT
            FROM shared a JOIN shared b USING (text) WHERE a.grp <> b.grp GROUP BY a.grp, b.grp"""
        ).fetchall()
        inner = db.execute(
            "SELECT grp, sum(n - 1)::BIGINT, sum(s - one)::BIGINT FROM texts GROUP BY grp"
        ).fetchall()
        for a, b, n, s in [*pairs, *((g, g, n, s) for g, n, s in inner)]:
            documents[a][b], size[a][b] = n, s
        ((unique_documents, unique),) = db.execute(
            """SELECT count(*), coalesce(sum(best), 0)::BIGINT
            FROM (SELECT max(best) AS best FROM texts GROUP BY text HAVING max(best) IS NOT NULL)"""
        ).fetchall()
    return Overlap(groups, documents, size, unique_documents, unique)


Say = Callable[[str], None]


@dataclass
class Prepared:
    """The results of `prepare`: everything known before the first document is written."""

    sources: list[Source]
    measured: Measured
    chosen: EpochPlan
    totals: Totals
    record: MixRecord


def prepare(
    mix: MixSettings, sources: list[Source], scratch: Path, say: Say, copy: Copy | None = None
) -> Prepared:
    """Measure the sources and choose documents. If `copy` is given, all documents are stored there.
    If the mix is impossible, print the nearest mix and raise UsageError. With `mix.nearest`, return
    the nearest mix instead."""
    quality = mix.quality
    strata = Strata(
        by=mix.by,
        column=quality.column if quality else None,
        edges=quality.edges if quality else (),
        since=moment(mix.since, "since"),
        until=moment(mix.until, "until"),
        undated=mix.undated,
    )
    if mix.by is None:  # fail before anything is read
        check(sorted(source.name for source in sources), mix.request())
    size = sizes_in(mix.unit, Path(mix.tokenizer) if mix.tokenizer else None)
    path = scratch / "measured.parquet"
    hashed = mix.overlap == "exact"
    measured = measure(sources, strata, size, mix.seed, path, hashed, copy)
    sizes = {} if mix.by else {(source.name, 0): 0 for source in sources}
    sizes |= measured.keyed(measured.sizes)
    if not any(sizes.values()):
        raise UsageError("mix: the sources hold no text to mix")
    plan = design(sizes, mix.request())
    quota = np.zeros(len(strata.keys), np.int64)
    for key, number in strata.keys.items():
        quota[number] = plan.strata.get(key, 0)
    chosen = choose(measured, quota)
    groups = sorted({group for group, _ in sizes})
    number_of = {group: number for number, group in enumerate(groups)}
    group_numbers = np.array([number_of[group] for group, _ in strata.keys], np.int32)
    marked = scratch / "marked.parquet" if hashed else None
    totals = count_taken(measured, chosen, group_numbers, marked)
    if not totals.copies.any():
        raise UsageError("mix: the mix is smaller than one document; ask for more")
    shared = count_shared(marked, groups) if marked is not None else None
    record = MixRecord(
        mix.unit,
        mix.unit == "tokens" and not mix.tokenizer,
        mix.seed,
        mix.weights,
        mix.by,
        *_amounts(mix, groups, measured, quota, totals, plan.amounts),
        {source: dict(reasons) for source, reasons in strata.outside.items()},
        {source.name: Inputs(source.inputs, len(source.files)) for source in sources},
        shared,
        plan.refused,
    )
    if plan.refused and not mix.nearest:
        say(f"the requested mix is impossible ({plan.refused}); the nearest possible mix is")
        for line in table.text(record):
            say(line)
        raise UsageError(
            f"mix: {plan.refused}; nearest possible: {_brief(record)}; take it with --nearest"
            " (nearest: true), ask for less with --total, or allow more with --max-epochs"
        )
    return Prepared(sources, measured, chosen, totals, record)


def make(
    mix: MixSettings, prepared: Prepared, copy: Copy, folder: Path, context: ProductContext
) -> dict[str, Any]:
    """Write the documents of the mix, which are read from `copy` (the decoded documents on disk),
    into the folder. Return figures for the report."""
    totals = prepared.totals
    own = frozenset({SOURCE, EPOCH}.union(*(source.own for source in prepared.sources)))
    layout = Layout(mix.part_bytes, int(totals.bytes.sum()), context.workers, own)
    folder.mkdir(parents=True)
    files = write_mix(copy, prepared.measured, prepared.chosen, layout, folder)
    documents = sum(int(f["documents"]) for f in files)
    size = sum(int(f["text_bytes"]) for f in files)
    if documents != totals.copies.sum() or size != totals.bytes.sum():
        raise RunFailed("mix: written documents are missing on disk; run the command again")
    record = prepared.record
    values = json_values(record)
    facts = {name: values[name] for name in ("unit", "estimated", "seed", "rows", "outside")}
    digest = text_digest(json.dumps(mix.identity().values))[:16]
    write_manifest(folder, files, digest, mix=facts)
    return {
        "documents": documents,
        "bytes": size,
        "kept_ids": total_ids(str(f["ids"]) for f in files),
        "folder": folder.name,
        "mix": values,
        "input": _tally(prepared.sources) if mix.sources else None,
        "warnings": _warnings(record),
    }


def preview(mix: Any, as_json: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="llmcurate-mix-") as folder:
        say = print if not as_json else lambda line: None
        record = prepare(mix, mix.opened(), Path(folder), say).record
    if as_json:
        echo_json(json_values(record))
    else:
        echo("\n".join([*_warnings(record), *table.text(record)]))


def _brief(record: MixRecord, most: int = 8) -> str:
    rows = record.largest_first
    parts = [f"{r.name} {100 * r.share:.1f} % ({r.epochs:.2f} epochs)" for r in rows[:most]]
    remainder = f" and {len(rows) - most} more" if len(rows) > most else ""
    return f"{', '.join(parts)}{remainder} of {record.total.amount:,} {record.unit}"


def _warnings(record: MixRecord) -> list[str]:
    warnings = []
    if record.estimated:
        warnings.append("tokens are estimated as bytes / 4; --tokenizer counts them")
    if record.refused:
        warnings.append(f"not the requested mix: {record.refused}")
    return warnings


_SUMMED = (
    *("read", "kept", "rejected", "corrupt", "bytes_in", "bytes_out"),
    *("passed_over", "bad_dates", "digests_compared"),
)


def _tally(sources: list[Source]) -> dict[str, Any]:
    tallies = [source.direct.tally for source in sources if source.direct]
    sums = {name: sum(tally[name] for tally in tallies) for name in _SUMMED}
    added = {}
    for name in ("skipped", "primary", "left_out", "misfits", "digests_differing"):
        added[name] = dict(
            sorted(sum((Counter(tally[name]) for tally in tallies), Counter()).items())
        )
    examples = [e for tally in tallies for e in tally["corrupt_examples"]]
    empty = [tally["without_documents"] for tally in tallies]
    first = next((each["first"] for each in empty if each["files"]), "")
    without = {"files": sum(each["files"] for each in empty), "first": first}
    return {**sums, **added, "corrupt_examples": examples[:100], "without_documents": without}


def _amounts(
    mix: MixSettings,
    groups: list[str],
    measured: Measured,
    quota: np.ndarray,
    totals: Totals,
    amounts: dict[str, int],
) -> tuple[list[Row], Amounts]:
    whole = int(totals.amount.sum())
    labels = mix.quality.labels if mix.quality else []

    def figures(keys: list[Key]) -> Amounts:
        at = [measured.strata.keys[key] for key in keys]
        size, amount = int(measured.sizes[at].sum()), int(totals.amount[at].sum())
        documents = int(measured.documents[at].sum())
        return Amounts(
            documents=documents,
            bytes=int(measured.bytes[at].sum()),
            size=size,
            quota=int(quota[at].sum()),
            amount=amount,
            copies=int(totals.copies[at].sum()),
            share=round(amount / whole, 6) if whole else 0.0,
            epochs=round(amount / size, 4) if size else 0.0,
            unique=int(totals.unique[at].sum()),
            unique_documents=int(totals.taken[at].sum()),
            last_epoch=int(totals.drawn[at].sum()),
            never=documents - int(totals.taken[at].sum()),
        )

    keys = sorted(measured.strata.keys)
    rows = []
    for group in groups:
        own_keys = [key for key in keys if key[0] == group]
        own = vars(figures(own_keys))
        buckets = [Bucket(labels[key[1]], **vars(figures([key]))) for key in own_keys if labels]
        rows.append(Row(group, amounts[group], **own, buckets=buckets))
    return rows, figures(keys)
