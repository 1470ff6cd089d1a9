"""Dedup of passages from the sketches of a corpus to decisions, by tasks.

keys -> shared -> rows -> owners -> pieces. Only hashes and positions are looked at. Passages that
stand once leave at `shared`; a group of sketch files says of each key that is left how often it has
it and in which document it should stay (rows), one task a slice of the keys compares what groups
say (owners), and each group decides on its own passages (pieces). The caller keeps nothing of the
corpus: it copies the pieces, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.decisions import COLUMNS, ROWS, join_pieces, piece_files, write_piece
from curate.corpus.phases import Done, Phase, forget, run_phases
from curate.corpus.shuffle.tasks import Group, groups, read_slice, run_tasks, write_slices
from curate.corpus.sketches import Sketches, Task, sketch_batches
from curate.dedup.passages.keys import estimated_passages
from curate.dedup.passages.rows import Runs, member_files, ranks, row_files
from curate.dedup.passages.shared import find_shared, partition_passages
from llmcurate.base.disk.units import counted

if TYPE_CHECKING:
    from curate.dedup.passages.repeated_passages import DedupPassages


# A task of a slice of the keys has one row a group and key (with `keep: none` two) and chooses the
# document that keeps the passage. It answers each group in the order of its keys, so that no key is
# sent back. Clusters are numbered in order of their keys.

ANSWERS = pa.schema(
    [
        ("cluster", pa.int64()),  # in the slice; null: nobody else has the key
        ("lost", pa.bool_()),  # no copy stays
        ("here", pa.bool_()),  # the document preferred most is of this group
        ("owner", pa.string()),  # its id
        ("other", pa.string()),  # where it loses its copies too: the document preferred least
    ]
)


def owner_files(folder: Path, count: int) -> list[Path]:
    """The answers of each of so many slices, a record batch a group."""
    return [folder / f"owners-{part:05d}.arrow" for part in range(count)]


def write_owners(task: Task) -> dict[str, Any]:
    """A task: who keeps the passages of a slice. Held are its rows and documents, some 200 bytes a
    row, and a database of 512 MB that spills while it sorts the documents."""
    folder, part, groups = Path(task["folder"]), task["part"], task["groups"]
    files = row_files(Path(task["rows"]), groups)
    rows = [*read_slice([pair[0] for pair in files], part)]
    documents = pa.Table.from_batches(read_slice([pair[1] for pair in files], part))
    sizes = np.array([len(batch) for batch in rows])
    documents_of_group = np.array([len(b) for b in read_slice([pair[1] for pair in files], part)])
    group = np.repeat(np.arange(groups), sizes)
    table = pa.Table.from_batches(rows).combine_chunks()
    low, high, document, copies = (column.to_numpy() for column in table.columns)
    document = document + np.repeat(np.cumsum(documents_of_group) - documents_of_group, sizes)
    # A group's own rows of a key come in their order, which is all there is to know of one group.
    preference = np.arange(len(low))
    if groups > 1:
        preference = ranks(documents.combine_chunks(), task["survivor"], folder)[document]
    runs = Runs(low, high, preference.astype(np.uint64), copies)
    keeper, least = document[runs.first], document[runs.last]
    shared = runs.total > 1
    lost = shared & (keeper != least) & (task["keep"] == "none")
    cluster = np.where(shared, np.cumsum(shared) - 1, -1)

    answered = np.flatnonzero(copies > 0)
    run = runs.run_of[answered]
    is_own = shared[run] & (group[runs.first[run]] == group[answered])
    ids = documents["id"].combine_chunks()
    answers = pa.table(
        [
            pa.array(cluster[run], mask=~shared[run]),
            pa.array(lost[run]),
            pa.array(is_own),
            ids.take(pa.array(keeper[run], mask=~shared[run])),
            ids.take(pa.array(least[run], mask=~(lost[run] & is_own))),
        ],
        schema=ANSWERS,
    )
    bounds = np.searchsorted(group[answered], np.arange(groups + 1)).tolist()
    each = (answers.slice(begin, end - begin) for begin, end in pairwise(bounds))
    write_slices(owner_files(folder, part + 1)[-1], ANSWERS, each)
    members = int(runs.total[shared].sum())
    stay = int(np.count_nonzero(shared & ~lost))
    return {
        "clusters": int(np.count_nonzero(shared)),
        "members": members,
        "dropped": members - stay,
        "lost": int(np.count_nonzero(lost)),
    }


# local: whether all copies are in one document, or the copy that stays is in the same one.
DECISIONS = pa.schema([*COLUMNS, ("local", pa.bool_())])


def write_pieces(task: Task) -> dict[str, Any]:
    """A task: the decisions on a group's passages, ordered by document and byte. Held are the
    answers, the group's ids and 30 bytes a passage."""
    group = Group.load(task)
    answers = [*read_slice(owner_files(Path(task["owners"]), len(task["clusters"])), group.part)]
    # Clusters of a slice come behind those of the slices before it.
    before = np.repeat(task["clusters"], [len(batch) for batch in answers])
    table = pa.Table.from_batches(answers).combine_chunks()
    path = piece_files(Path(task["folder"]), group.part + 1)[-1]
    cut: list[int] = []
    write_piece(path, DECISIONS, _decisions(task, group, table, before, cut))
    return {"cut": sum(cut)}


def bytes_under(document: np.ndarray, a: np.ndarray, z: np.ndarray, last: int) -> tuple[int, int]:
    """(bytes that lie in one of the spans, what to give as `last` with the spans that follow).
    Spans are ordered by document, then a; those of a document may overlap. last: 0 at first."""
    doc, begin, end = (array.astype(np.int64) for array in (document, a, z))
    ends = np.maximum.accumulate(np.concatenate([[last], (doc << 32) | end]))
    covered = np.where(ends[:-1] >> 32 == doc, ends[:-1] & 0xFFFFFFFF, 0)
    return int(np.maximum(end - np.maximum(begin, covered), 0).sum()), int(ends[-1])


def _decisions(
    task: Task, group: Group, answers: pa.Table, before: np.ndarray, cut: list[int]
) -> Iterator[pa.RecordBatch]:
    """Batches of decisions; `cut` is given the bytes that go of this run's documents."""
    members, firsts = (np.load(path) for path in member_files(Path(task["rows"]), group.part))
    document, a, z, key = members
    shared = answers["cluster"].is_valid().to_numpy()
    members_shared = np.flatnonzero(shared[key])
    if not len(members_shared):
        return
    cluster = answers["cluster"].fill_null(0).to_numpy() + before
    lost, is_own = (answers[name].to_numpy() for name in ("lost", "here"))
    owner, other = (answers[name].chunk(0) for name in ("owner", "other"))
    names = pa.concat_arrays([owner, other])
    batches = [*sketch_batches(group.files, [])]
    sketches = pa.Table.from_batches(batches).combine_chunks()
    ids = sketches["id"].chunk(0)
    part, n = (sketches[name].to_numpy() for name in ("part", "n"))
    last = 0
    for begin in range(0, len(members_shared), ROWS):
        at = members_shared[begin : begin + ROWS]
        k, document_of = key[at], document[at]
        keeper = is_own[k] & (document_of == document[firsts[k]])
        removed = lost[k] | ~(is_own[k] & (at == firsts[k]))
        counted = removed & (part[document_of] >= 0)  # not those of earlier corpora
        size, last = bytes_under(document_of[counted], a[at][counted], z[at][counted], last)
        cut.append(size)
        # The partner of a copy is the document preferred most; of that one, where it loses its
        # copies too, the one preferred least.
        partner = np.where(keeper & lost[k], len(owner) + k.astype(np.int64), k)
        columns = [
            pa.array(part[document_of], pa.int32()),
            pa.array(n[document_of], pa.int64()),
            pa.array(removed),
            ids.take(pa.array(document_of)),
            pa.array(cluster[k]),
            names.take(pa.array(partner, mask=lost[k])),
            names.take(pa.array(partner, mask=~removed)),
            pa.array(np.ones(len(at)), mask=~removed),
            pa.repeat(pa.scalar(task["method"]), len(at)),
            pa.array(a[at].astype(np.int64)),
            pa.array(z[at].astype(np.int64)),
            pa.array(keeper & ~lost[k]),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=DECISIONS)


def phases(step: DedupPassages, sketches: Sketches, sketch_groups: list[Group]) -> list[Phase]:
    """The phases before the decisions' file."""
    run, count = sketches.run, len(sketch_groups)
    chosen = {"survivor": step.survivor, "keep": step.keep}

    def keys(folder: Path, done: Done) -> dict[str, Any]:
        about = sum(estimated_passages(pq.read_metadata(file.path)) for file in sketches.files)
        return partition_passages(sketches, folder, sketch_groups, about)

    def shared(folder: Path, done: Done) -> dict[str, Any]:
        return find_shared(sketches, folder, done.folder("keys"), done.facts)

    def rows(folder: Path, done: Done) -> dict[str, Any]:
        # More than there will be: of a key that a group has twice and more one row is left.
        most = (done.facts["shared"] + done.facts["repeated"]) * (1 + (step.keep == "none"))
        settings: dict[str, Any] = {
            "slices": max(1, -(-most // sketches.sizes.slice_rows)),
            **chosen,
        }
        settings |= {"pieces": done.facts["pieces"], "folder": str(folder)}
        settings |= {name: str(done.folder(name)) for name in ("keys", "shared")}
        each = zip(sketch_groups, done.facts["passages"], strict=True)
        tasks = [{**group.dump(), **settings, "passages": passages} for group, passages in each]
        run_tasks(run, "curate.dedup.passages.rows:write_rows", tasks)
        return {"slices": settings["slices"]}

    def owners(folder: Path, done: Done) -> dict[str, Any]:
        settings = {
            "rows": str(done.folder("rows")),
            "folder": str(folder),
            "groups": count,
            **chosen,
        }
        tasks = [{"part": part, **settings} for part in range(done.facts["slices"])]
        answers = run_tasks(run, "curate.dedup.passages.copies:write_owners", tasks)
        names = ("clusters", "members", "dropped", "lost")
        totals = {name: sum(totals_of_slice[name] for totals_of_slice in answers) for name in names}
        return {**totals, "by_slice": [totals_of_slice["clusters"] for totals_of_slice in answers]}

    def pieces(folder: Path, done: Done) -> dict[str, Any]:
        by_slice = done.facts["by_slice"]
        before = (np.cumsum(by_slice) - by_slice).tolist()
        settings = {"clusters": before, "method": step.method, "folder": str(folder)}
        settings |= {name: str(done.folder(name)) for name in ("rows", "owners")}
        tasks = [{**group.dump(), **settings} for group in sketch_groups]
        cut = run_tasks(run, "curate.dedup.passages.copies:write_pieces", tasks)
        return {"cut": sum(d["cut"] for d in cut)}

    return [
        Phase("keys", keys),
        Phase("shared", shared),
        Phase("rows", rows, frees=("keys", "shared")),
        Phase("owners", owners),
        Phase("pieces", pieces, frees=("rows", "owners")),
    ]


def resolve(step: DedupPassages, sketches: Sketches) -> dict[str, Any]:
    """Writes the decisions on every passage that stands more than once; returns counts, and `cut`,
    how many bytes go."""
    sketch_groups = groups(sketches, sketches.sizes.task_passages, estimated_passages)
    done = run_phases(sketches.folder, phases(step, sketches, sketch_groups))
    join_pieces(
        sketches.decisions, DECISIONS, piece_files(done.folder("pieces"), len(sketch_groups))
    )
    forget(sketches.folder)
    counts: dict[str, Any] = {n: done.facts[n] for n in ("clusters", "members", "dropped", "cut")}
    if step.keep == "none":
        counts["notes"] = [
            f"{counted(done.facts['lost'], 'passage')} stood in more than one document; no copy"
            " of them was"
            " kept (keep: none)."
        ]
    return counts
