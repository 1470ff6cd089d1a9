"""Archives as the reader sees them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from curate.formats.inputs import plan_inputs
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader


def read(path: Path, **settings: Any) -> tuple[list[Any], list[Any]]:
    """(batches of documents, what is corrupt) of a file, in partitions of some kilobytes."""
    how = ReadSettings(partition_bytes=2048, **settings)
    plan = plan_inputs([str(path)], how.partition_bytes)
    batches, corrupt = [], []
    for part in range(len(plan.partitions)):
        reader = PartitionReader(plan, part, how)
        for batch in reader:
            batch.docs.table.validate(full=True)
            batches.append(batch.docs)
            if batch.refused is not None:
                batch.refused.split()
        corrupt += map(asdict, reader.account.corrupt.places())
    assert all(c["file"] and c["what"] and "\n" not in c["what"] for c in corrupt)
    return batches, corrupt
