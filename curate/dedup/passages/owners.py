"""Which document keeps a passage: what all groups say of a slice of the keys, and the answer.

A task of a slice has one row a group and key (with `keep: none` two). It answers each group in the
order of its keys, so that no key is sent back. Clusters are numbered in order of their keys.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.dedup.passages.preferred import Runs, ranks
from curate.dedup.passages.rows import row_files
from curate.dedup.shuffle.slices import read_slice, write_slices
from curate.sketches import Task

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


def write_owners_files(task: Task) -> dict[str, list[str]]:
    """What `write_owners` reads (a record batch of each) and writes."""
    reads = [str(p) for pair in row_files(Path(task["rows"]), task["groups"]) for p in pair]
    written = owner_files(Path(task["folder"]), task["part"] + 1)[-1]
    return {"reads": reads, "writes": [str(written)]}


def write_owners(task: Task) -> dict[str, Any]:
    """A task: who keeps the passages of a slice. Held are its rows and documents, some 200 bytes a
    row, and a database of 512 MB that spills while it sorts the documents."""
    folder, part, groups = Path(task["folder"]), task["part"], task["groups"]
    files = row_files(Path(task["rows"]), groups)
    rows = [*read_slice([pair[0] for pair in files], part)]
    documents = pa.Table.from_batches(read_slice([pair[1] for pair in files], part))
    sizes = np.array([len(batch) for batch in rows])
    known = np.array([len(b) for b in read_slice([pair[1] for pair in files], part)])
    group = np.repeat(np.arange(groups), sizes)
    table = pa.Table.from_batches(rows).combine_chunks()
    low, high, document, copies = (column.to_numpy() for column in table.columns)
    document = document + np.repeat(np.cumsum(known) - known, sizes)
    # A group's own rows of a key come in their order, which is all there is to know of one group.
    place = np.arange(len(low))
    if groups > 1:
        place = ranks(documents.combine_chunks(), task["survivor"], folder)[document]
    runs = Runs(low, high, place.astype(np.uint64), copies)
    keeper, least = document[runs.first], document[runs.last]
    shared = runs.total > 1
    lost = shared & (keeper != least) & (task["keep"] == "none")
    cluster = np.where(shared, np.cumsum(shared) - 1, -1)

    answered = np.flatnonzero(copies > 0)
    run = runs.run_of[answered]
    here = shared[run] & (group[runs.first[run]] == group[answered])
    ids = documents["id"].combine_chunks()
    answers = pa.table(
        [
            pa.array(cluster[run], mask=~shared[run]),
            pa.array(lost[run]),
            pa.array(here),
            ids.take(pa.array(keeper[run], mask=~shared[run])),
            ids.take(pa.array(least[run], mask=~(lost[run] & here))),
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
