"""Duplicates within training text and between training and validation text, as in Lee et al. 2022.

Near-duplicates are counted as documents, in clusters of verified pairs (their table 2, NearDup);
exact substrings are counted as text (their table 3, ExactSubstr). A search for substrings marks
only later occurrences of a passage. So it runs twice: with training text first it finds duplicates
in validation text, with validation text first those in training text.

OUT/sides holds the training text and the validation text, OUT/runs the dedup runs on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.formats.read_settings import ReadSettings
from curate.run.driver import run_planned
from curate.run.plan import make_plan
from curate.run.records import Options
from curate.steps.recipe import compose
from llmcurate.base.disk.database import literal, paths_literal, scratch_database
from llmcurate.base.disk.files import remove
from llmcurate.base.disk.units import counted, format_bytes, format_percent
from llmcurate.base.errors import UsageError
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import say, table

TRAIN, VAL = "train", "val"
SIDES = (TRAIN, VAL)
SCHEMA = pa.schema([("id", pa.string()), ("text", pa.large_string())])
TRIED = 20  # longest passages that are tried until one is found in both documents
EXCERPT = 200  # characters of the longest match that are shown
RECALL = 0.99  # share of pairs at the threshold to find; found pairs are verified


Setting = str | float | bool


@dataclass(frozen=True)
class Share:
    """A part of a whole, both in documents or both in bytes of text."""

    JSON = ("part", "whole", "share")
    part: int
    whole: int

    @property
    def share(self) -> float:
        return round(self.part / self.whole, 6) if self.whole else 0.0


@dataclass(frozen=True)
class Match:
    """The longest passage that two documents share, and where it starts in each, in bytes."""

    bytes: int
    first: str
    first_start: int
    second: str
    second_start: int
    text: str


@dataclass(frozen=True)
class Audit:
    """The duplicates of a corpus with two sides, training text and validation text. `near` and
    `exact` map `A in B` to the share of side A that has a duplicate in side B; `near` counts
    documents, `exact` bytes."""

    documents: dict[str, int]  # side -> number
    bytes: dict[str, int]  # side -> bytes of text
    similarity: float  # least Jaccard similarity of near-duplicates
    unit: str  # least length of exact duplicates, as in `50 tokens`
    near: dict[str, Share]
    exact: dict[str, Share]
    clusters: int  # number of clusters of near-duplicates
    largest: int  # number of documents in the largest cluster
    longest: dict[str, Match | None]  # side -> longest passage shared


def audit(
    inputs: list[str],
    val: list[str],
    shards: Path | None,
    out: Path,
    similarity: float,
    tokenizer: Path | None,
    workers: int,
    quiet: bool,
    read: ReadSettings,
) -> Audit:
    """Return the duplicates within and between the training text (`inputs`) and the validation
    text. The validation text is `val`, or the documents in the validation part of the token shards
    `shards`, which were made from `inputs`. `similarity` is the least Jaccard similarity of
    near-duplicates. Raises UsageError if the training or the validation text is empty."""
    if val and shards is not None:
        raise UsageError("dedup audit: give --val or --shards, not both")
    sides = out / "sides"
    remove(sides, inside=out)
    held = _held_out(shards) if shards is not None else set()
    measured = _write_sides(sides, inputs, val, held, read)
    both = [side for side in SIDES if measured[side][0]]
    if TRAIN not in both:
        raise UsageError("dedup audit: the input has no training text")
    if (val or shards is not None) and VAL not in both:
        raise UsageError("dedup audit: no validation text: give the inputs of these shards")
    near: dict[str, Setting] = {
        "threshold": similarity,
        "recall": RECALL,
        "verify": similarity,
        "max_removal": 1.0,
    }
    exact: dict[str, Setting] = {"keep_index": False, "max_removal": 1.0}
    if tokenizer is not None:
        exact["tokenizer"] = str(tokenizer)

    def run(name: str, step: str, settings: dict[str, Setting], order: Iterable[str]) -> Path:
        say(f"{name}: {', '.join(order)}", quiet)
        folders = [str(sides / side) for side in order]
        plan = make_plan(compose("dedup", [(step, settings)], ()), folders)
        run_planned(plan, out / "runs" / name, Options(workers, True))
        return out / "runs" / name / "decisions.parquet"

    near_decisions = run("near", "dedup_minhash", near, both)
    within_decisions = run("within", "dedup_suffix_array", exact | {"keep": "none"}, [TRAIN])
    across_decisions = {}
    if VAL in both:
        across_decisions[VAL, TRAIN] = run("val-in-train", "dedup_suffix_array", exact, both)
        across_decisions[TRAIN, VAL] = run("train-in-val", "dedup_suffix_array", exact, both[::-1])
    documents = {side: measured[side][0] for side in both}
    size = {side: measured[side][1] for side in both}
    with scratch_database(out / ".spill-audit") as db:
        near_shares, clusters, largest = _near(db, near_decisions, documents)
        exact_shares = {
            f"{TRAIN} in {TRAIN}": Share(_bytes(db, within_decisions, TRAIN, None), size[TRAIN])
        }
        longest = {TRAIN: _longest(db, within_decisions, sides, TRAIN, TRAIN)}
        for (side, within), path in across_decisions.items():
            exact_shares[f"{side} in {within}"] = Share(_bytes(db, path, side, within), size[side])
        if across_decisions:
            longest[VAL] = _longest(db, across_decisions[VAL, TRAIN], sides, VAL, TRAIN)
    unit = "50 tokens" if tokenizer is not None else "200 characters"
    return Audit(
        documents, size, similarity, unit, near_shares, exact_shares, clusters, largest, longest
    )


def _held_out(shards: Path) -> set[str]:
    paths = sorted([*(shards / "val").glob("documents-*.parquet"), *shards.glob("documents-val.*")])
    if not paths:
        raise UsageError(f"{shards}: no validation shards; encode with --val-fraction")
    return {
        name for path in paths for name in pq.read_table(path, columns=["id"])["id"].to_pylist()
    }


def _write_sides(
    folder: Path, inputs: list[str], val: list[str], held: set[str], read: ReadSettings
) -> dict[str, tuple[int, int]]:
    from curate.corpus.direct_input import DirectInput
    from curate.formats.reading import plan_reading

    measured = {}
    for side in SIDES:
        named = val if side == VAL and val else inputs
        (folder / side).mkdir(parents=True)
        count = size = 0
        with pq.ParquetWriter(folder / side / "part.parquet", SCHEMA) as writer:
            for batch in DirectInput(plan_reading(named, read), read).batches(["id", "text"]):
                on_side = pa.array(
                    [(name in held) == (side == VAL) for name in batch["id"].to_pylist()]
                )
                rows = batch if side == VAL and val else batch.filter(on_side)
                names = [f"{side}:{name}" for name in rows["id"].to_pylist()]
                text = rows["text"].cast(pa.large_string())
                writer.write_table(pa.table([pa.array(names, pa.string()), text], schema=SCHEMA))
                count += len(names)
                size += int(pa.compute.sum(pa.compute.binary_length(text)).as_py() or 0)
        measured[side] = (count, size)
    return measured


def _near(db: Any, decisions: Path, documents: dict[str, int]) -> tuple[dict[str, Share], int, int]:
    rows = db.execute(
        f"""SELECT t, v, count(*) FROM (
          SELECT count(*) FILTER (starts_with(id, '{TRAIN}:')) AS t,
                 count(*) FILTER (starts_with(id, '{VAL}:')) AS v
          FROM read_parquet({literal(decisions)}) GROUP BY cluster) GROUP BY t, v"""
    ).fetchall()
    shares = {}
    for side in documents:
        for within in documents:
            total = 0
            for t, v, n in rows:
                of_side, of_other = (t, v) if side == TRAIN else (v, t)
                twins = of_side - 1 if side == within else of_other
                total += of_side * n if twins > 0 else 0
            shares[f"{side} in {within}"] = Share(total, documents[side])
    return shares, sum(n for *_, n in rows), max((t + v for t, v, _ in rows), default=0)


def _spans(decisions: Path, side: str, within: str | None) -> str:
    partner = "" if within is None else f" AND starts_with(partner_id, '{within}:')"
    return f"""SELECT id, partner_id, span_start AS a, span_end AS z
    FROM read_parquet({literal(decisions)})
    WHERE partner_id IS NOT NULL AND starts_with(id, '{side}:'){partner}"""


def _bytes(db: Any, decisions: Path, side: str, within: str | None) -> int:
    (total,) = db.execute(
        f"""SELECT coalesce(sum(greatest(0, z - greatest(a, before))), 0)::BIGINT FROM (
          SELECT a, z, coalesce(max(z) OVER (PARTITION BY id ORDER BY a, z
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
          FROM ({_spans(decisions, side, within)}))"""
    ).fetchone()
    return int(total)


def _longest(db: Any, decisions: Path, sides: Path, side: str, within: str) -> Match | None:
    rows = db.execute(
        f"""SELECT id, partner_id, a, z FROM ({_spans(decisions, side, within)})
        WHERE id <> partner_id ORDER BY z - a DESC, id, a, partner_id LIMIT {TRIED}"""
    ).fetchall()
    files = paths_literal([sides / name / "part.parquet" for name in SIDES])
    for first, second, a, z in rows:
        texts = dict(
            db.execute(
                f"SELECT id, encode(text) FROM read_parquet({files}) WHERE id IN (?, ?)",
                [first, second],
            ).fetchall()
        )
        original, copy = bytes(texts.get(first, b"")), bytes(texts.get(second, b""))
        at = copy.find(original[a:z])
        # Not found: the passage consists of adjacent duplicates, or an id was renamed.
        if at < 0 or a == z or not copy:
            continue
        stop = at + z - a
        while a and at and original[a - 1] == copy[at - 1]:
            a, at = a - 1, at - 1
        while z < len(original) and stop < len(copy) and original[z] == copy[stop]:
            z, stop = z + 1, stop + 1
        begin = original[a : min(z, a + 4 * EXCERPT)].decode("utf-8", "ignore")[:EXCERPT]
        return Match(z - a, _plain_id(first), a, _plain_id(second), at, begin)
    return None


def _plain_id(name: str) -> str:
    return name.partition(":")[2]


NAMES = {
    "train in train": "training text that is elsewhere in training text",
    "train in val": "training text that is in validation text",
    "val in train": "validation text that is in training text",
    "val in val": "validation text that is elsewhere in validation text",
}


def text(audited: Audit) -> str:
    sides = [
        f"{name}: {counted(count, 'document')}, {format_bytes(audited.bytes[side])}"
        for (side, count), name in zip(
            audited.documents.items(), ("training", "validation"), strict=False
        )
    ]
    rows = []
    for key, name in NAMES.items():
        if key in audited.near:
            near, exact = audited.near[key], audited.exact.get(key)
            cells = [name, f"{near.part:,}", format_percent(near.share, 2)]
            rows.append([*cells, "" if exact is None else format_percent(exact.share, 2)])
    head = ("", "documents", "near-duplicates", f"text in passages of {audited.unit}")
    lines = [*sides, *table(head, rows)]
    lines.append(
        f"near-duplicates: Jaccard similarity of {audited.similarity:g} or more;"
        f" {counted(audited.clusters, 'cluster')}, the largest of {audited.largest:,}"
    )
    for side, where in ((VAL, "validation and training"), (TRAIN, "two training documents")):
        match = audited.longest.get(side)
        if match is not None:
            lines.append(
                f"longest match of {where}: {match.bytes:,} bytes, in"
                f" {plain(match.first, 60)} and {plain(match.second, 60)}:"
                f' "{" ".join(plain(match.text, EXCERPT).split())}"'
            )
    return "\n".join(lines)
