"""A part of the input: its first documents (`read.limit`), or a share drawn by id (`read.share`).

Both depend on the input and the settings alone. A share is decided document by document. The first
documents need a count: the plan is cut behind the partition that holds the last of them, which
reads no further than that. To know where this is, they are read once when the run is planned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from curate.formats.inputs import InputPlan, plan_inputs
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader
from llmcurate.base.disk.units import counted


def plan_reading(inputs: Iterable[str], read: ReadSettings) -> InputPlan:
    """The plan of what a command reads of its inputs. Errors as of `plan_inputs`."""
    plan = plan_inputs(
        inputs,
        read.partition_bytes,
        skip_unreadable=read.skip_unreadable,
        columns=read.named,
        choice=read.choice,
    )
    return plan if read.limit is None else first_documents(plan, read, read.limit)


def first_documents(plan: InputPlan, read: ReadSettings, limit: int) -> InputPlan:
    """The plan without what lies behind the first `limit` documents; the plan itself where it has
    no more of them."""
    left = limit
    for part in range(len(plan.partitions)):
        documents = 0
        for batch in PartitionReader(plan, part, read):
            documents += batch.ids.num_rows
            if documents >= left:
                return _cut(plan, part, left, limit)
        left -= documents
    return plan


def _cut(plan: InputPlan, part: int, documents: int, limit: int) -> InputPlan:
    """The plan up to some documents of a partition."""
    partitions = plan.partitions[: part + 1]
    files = plan.files[: 1 + max(piece.file for slices in partitions for piece in slices)]
    behind = len(plan.partitions) - len(partitions)
    notice = f"only the first {counted(limit, 'document')} of the input are read (read.limit)"
    if behind:
        notice += f"; {behind:,} of {counted(len(plan.partitions), 'partition')} are not opened"
    return replace(
        plan,
        files=files,
        partitions=partitions,
        notices=(*plan.notices, notice),
        documents_of_last=documents,
    )
