"""Exact duplicates: documents whose text, or whose URL, is the same.

Keys are hashes (dedup/hashes.py), xxh3-128 by default: among 10^12 documents the odds that any two
different ones share a key are about 10^24 / 2^129, or 1.5e-15.

A small corpus (Sizes.query_documents) is one query of the database. Of a larger one 64 bits of each
key go through the shuffle (corpus/shuffle), which leaves candidates, documents that may share a
key; their rows are cut into slices by key, and each slice is a task that asks the same query of a
database that holds SLICE_MEMORY and spills. Clusters are numbered by the caller, over members
alone.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from curate.corpus.phases import Done, Phase, forget, run_phases
from curate.corpus.shuffle import tasks as shuffle_tasks
from curate.corpus.shuffle.tasks import MOST, read_slice, write_slices
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Sketches, Task
from curate.dedup import survivors
from curate.dedup.removal import DedupStep, dropped
from curate.documents.documents import Documents
from llmcurate.base.disk.database import literal, paths_literal, scratch_database
from llmcurate.base.disk.files import replacing, temporary_name

if TYPE_CHECKING:
    pass


_SPACE = re.compile(r"\s+")


def normal_url(url: str) -> str:
    """C4's normal form: without scheme, `www.`, tracking queries and slashes at the end.

    Source: tensorflow_datasets/text/c4_utils.py, normalize_url.
    """
    url = re.sub(r"https?:\/\/(www\.)?", "", url)
    url = re.sub(r"\?(utm_|ref|feed).*", "", url)
    return url.rstrip("/")


def normal_text(text: str) -> str:
    """Lower case, runs of white space as one blank, none at the ends."""
    return _SPACE.sub(" ", text.lower()).strip()


class DedupExact(DedupStep):
    """Keeps one document of each set with the same text or URL."""

    name: ClassVar[str] = "dedup_exact"
    in_tasks: ClassVar[bool] = True

    key: Literal["text", "url"] = Field(
        "text",
        description="What is the same in two documents that are copies: the text or the URL.",
    )
    normalize: bool | None = Field(
        None,
        description=(
            "Whether keys are normalised: texts to lower case and single blanks, URLs to "
            "C4's normal form (c4_utils.py, normalize_url). Without a value texts are "
            "compared as they are and URLs in normal form."
        ),
    )
    hash: Literal[
        "xxh3-128", "murmur3-128", "blake2b-128", "blake2b-256", "sha256", "sha3-256", "sha1-64"
    ] = Field(
        "xxh3-128",
        description=(
            "The hash that texts or URLs are compared by; the number is its size in bits. "
            "`llmcurate dedup hashes` shows the speed of each and the odds of a collision."
        ),
    )

    @property
    def reach(self) -> Literal["one"]:
        """One of all documents with the same text or URL stays."""
        return "one"

    @property
    def method(self) -> str:
        """The name of this step in decisions: `exact:text` or `exact:url`."""
        return f"exact:{self.key}"

    @classmethod
    def replaces(cls, settings: dict[str, Any]) -> bool:
        """Newer versions of a page replace those of earlier runs."""
        return settings.get("key") == "url" and settings.get("survivor") == "newest"

    def _texts(self, docs: Documents) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The bytes of each row that are hashed, as (data: uint8[bytes], offsets: int64[rows + 1],
        absent: bool[rows], the rows that match no other)."""
        normal = self.key == "url" if self.normalize is None else self.normalize
        if self.key == "text" and not normal:
            data, offsets = docs.buffers()
            return data, offsets, np.diff(offsets) == 0
        values = docs.table["url"].to_pylist() if self.key == "url" else docs.text.to_pylist()
        make = str if not normal else normal_url if self.key == "url" else normal_text
        keys = [make(v).encode("utf-8", "replace") if v else b"" for v in values]
        offsets = np.zeros(len(keys) + 1, np.int64)
        np.cumsum([len(f) for f in keys], out=offsets[1:])
        absent = np.array([not v for v in values], np.bool_)
        return np.frombuffer(bytearray().join(keys), np.uint8), offsets, absent

    def sketch(self, docs: Documents) -> pa.Table:
        from curate.dedup.hashes import digests

        data, offsets, absent = self._texts(docs)
        hashes = digests(data, offsets, self.hash)
        kind = pa.binary(hashes.shape[1])
        flat = pa.py_buffer(np.ascontiguousarray(hashes))
        keys = pa.FixedSizeBinaryArray.from_buffers(kind, len(hashes), [None, flat])
        # Empty texts and absent URLs have no key and match nothing.
        keys = pc.if_else(pa.array(absent), pa.scalar(None, kind), keys)
        return pa.table({"key": keys, **survivors.columns(docs, self.survivor, self.label)})

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        return resolve(self, sketches)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        mask, _, partner = dropped(docs, decisions)
        return docs.drop(mask, f"same_{self.key}", np.ones(len(docs)), 1.0, partner)


SLICE_MEMORY = "512MB"


def members_query(source: str, survivor: str) -> str:
    """SQL of the rows of `source` that share their key: part, n, id, key, rank (1: stays),
    kept_id."""
    order = survivors.preference(survivor)
    return f"""
        WITH shared AS (
          SELECT key FROM {source} WHERE key IS NOT NULL GROUP BY key HAVING count(*) > 1)
        SELECT part, n, id, key,
               row_number() OVER (PARTITION BY key ORDER BY {order}) AS rank,
               first_value(id) OVER (PARTITION BY key ORDER BY {order}) AS kept_id
        FROM {source} WHERE key IN (SELECT key FROM shared)"""


def resolve(step: DedupExact, sketches: Sketches) -> dict[str, Any]:
    """Writes the decisions; returns counts for the report."""
    sizes = sketches.sizes
    groups = shuffle_tasks.groups(sketches, sizes.task_documents)
    if not sizes.query_documents < sum(group.rows for group in groups) < MOST:
        sketches.make_view()
        query = members_query("sketches", step.survivor)
        sketches.connection.execute(f"CREATE OR REPLACE TABLE members AS {query}")
        return write_decisions(sketches.connection, sketches.decisions, step.method)
    done = run_phases(sketches.folder, phases(step, sketches, groups))
    paths = member_files(done.folder("members"), done.facts["slices"])
    source = f"read_parquet({paths_literal(paths)})"
    # A table, as above: what the database knows of one, such as no nulls, is in what it writes.
    sketches.connection.execute(f"CREATE OR REPLACE TABLE members AS SELECT * FROM {source}")
    counts = write_decisions(sketches.connection, sketches.decisions, step.method)
    forget(sketches.folder)
    return counts


def phases(step: DedupExact, sketches: Sketches, groups: list[shuffle_tasks.Group]) -> list[Phase]:
    """The phases before decisions, of a corpus of several groups."""
    from curate.corpus.shuffle.buckets import find_buckets
    from curate.corpus.shuffle.candidates import candidate_tasks
    from curate.corpus.shuffle.partitions import partition_keys

    columns = ["key", *survivors.preferred_by(step.survivor)]

    def keys(folder: Path, done: Done) -> dict[str, Any]:
        return partition_keys(sketches, folder, groups, step.label, "key", 1)

    def buckets(folder: Path, done: Done) -> dict[str, Any]:
        return find_buckets(sketches, folder, done.folder("keys"), done.facts)

    def rows(folder: Path, done: Done) -> dict[str, Any]:
        slices = max(1, -(-done.facts["candidates"] // sketches.sizes.slice_candidates))
        settings = {"columns": columns, "slices": slices, "sizes": sketches.sizes.dump()}
        tasks = candidate_tasks(groups, done.folder("buckets"), folder, **settings)
        shuffle_tasks.run_tasks(sketches.run, f"{__name__}:write_rows", tasks)
        return {"slices": slices}

    def members(folder: Path, done: Done) -> dict[str, Any]:
        settings = {"rows": str(done.folder("rows")), "groups": done.facts["groups"]}
        settings |= {"folder": str(folder), "survivor": step.survivor}
        tasks = [{"part": part, **settings} for part in range(done.facts["slices"])]
        shuffle_tasks.run_tasks(sketches.run, f"{__name__}:write_members", tasks)
        return {}

    return [
        Phase("keys", keys),
        Phase("buckets", buckets, frees=("keys",)),
        Phase("rows", rows, frees=("buckets",)),
        Phase("members", members, frees=("rows",)),
    ]


def row_files(folder: Path, count: int) -> list[Path]:
    """The candidates' rows of each group, Arrow files with a record batch a slice."""
    return [folder / f"rows-{group:05d}.arrow" for group in range(count)]


def member_files(folder: Path, count: int) -> list[Path]:
    """The members of each slice."""
    return [folder / f"members-{part:05d}.parquet" for part in range(count)]


def write_rows(task: Task) -> dict[str, Any]:
    """A task: the rows of a group's candidates, cut into slices by their keys. Held are all."""
    from curate.corpus.shuffle.candidates import CandidateTask
    from curate.corpus.shuffle.partitions import fixed_rows

    candidates, slices = CandidateTask.load(task), task["slices"]
    table = pa.Table.from_batches(
        candidates.batches(task["columns"], Sizes.load(task).batch_candidates),
        candidates.schema(task["columns"]),
    )
    table = table.combine_chunks()
    slice_number = np.zeros(len(table), np.int64)
    if len(table):
        # Every candidate has a key: 32 bits of it, as a fraction of 2^32, times the slices.
        first = fixed_rows(table["key"].chunk(0), np.uint64)[:, 0] >> np.uint64(32)
        slice_number = ((first * np.uint64(slices)) >> np.uint64(32)).astype(np.int64)
    order = np.argsort(slice_number, kind="stable")
    ends = np.searchsorted(slice_number[order], np.arange(slices), "right")
    table = table.take(pa.array(order)).combine_chunks()
    bounds = [0, *ends.tolist()]
    slice_tables = (table.slice(begin, end - begin) for begin, end in pairwise(bounds))
    write_slices(
        row_files(candidates.folder, candidates.group.part + 1)[-1], table.schema, slice_tables
    )
    return {}


def write_members(task: Task) -> dict[str, Any]:
    """A task: the members of a slice and their ranks."""
    folder, part = Path(task["folder"]), task["part"]
    paths = row_files(Path(task["rows"]), task["groups"])
    with pa.OSFile(str(paths[0])) as file:
        schema = pa.ipc.open_file(file).schema

    with (
        replacing(member_files(folder, part + 1)[-1]) as aside,
        scratch_database(folder / temporary_name(f"spill-{part}")) as db,
    ):
        db.execute(f"SET memory_limit = '{SLICE_MEMORY}'")
        db.register("arriving", pa.RecordBatchReader.from_batches(schema, read_slice(paths, part)))
        db.execute("CREATE TABLE candidates AS SELECT * FROM arriving")
        query = members_query("candidates", task["survivor"])
        db.execute(f"COPY ({query}) TO {literal(aside)} (FORMAT parquet)")
    return {}


def write_decisions(db: Any, path: Path, method: str) -> dict[str, Any]:
    """The decisions on the rows of `members`, by part and n; counts."""
    db.execute(
        """CREATE OR REPLACE TABLE numbered AS
        SELECT key, row_number() OVER (ORDER BY min(kept_id)) - 1 AS cluster
        FROM members GROUP BY key"""
    )
    db.execute(
        f"""COPY (
        SELECT part, n, rank > 1 AS drop, id, cluster::BIGINT AS cluster, kept_id,
               CASE WHEN rank > 1 THEN kept_id END AS partner_id,
               CASE WHEN rank > 1 THEN 1.0::DOUBLE END AS similarity,
               '{method}' AS method, NULL::BIGINT AS span_start, NULL::BIGINT AS span_end
        FROM members JOIN numbered USING (key) ORDER BY part, n
        ) TO {literal(path)} (FORMAT parquet)"""
    )
    clusters, members = db.execute("SELECT count(DISTINCT key), count(*) FROM members").fetchone()
    return {"clusters": clusters, "members": members, "dropped": members - clusters}
