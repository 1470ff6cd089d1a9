"""Checkpoints in parts: each process writes a part of the tensors and reads the parts that its
weights need. torch.distributed.checkpoint assigns parts to processes. The files have our own format
(``tensors.py``), because torch's are pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import CheckpointException, StorageReader, StorageWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItem,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from llmcurate.base.disk.files import sync_path
from llmcurate.base.disk.sealed_json import checksum
from llmcurate.base.errors import LlmcurateError, RunFailed
from train.runs.tensors import Stored, Sums, tensor_checksum, write_tensors

# A context that the first process enters. It yields the folder to write into, and a dict for the
# checksums of files. At its end the complete folder gets its final name.
Writing = Callable[[], AbstractContextManager[tuple[Path, Sums]]]


def write_parts(tensors: Mapping[str, Mapping[str, Tensor]], writing: Writing, group: Any) -> None:
    """Write ``tensors``: {kind, such as "model" or "optimizer": {name: tensor}}. Every process of
    ``group`` must call this function. One process writes the tensors that are not split. If a
    process fails, all processes raise its ``OSError`` or ``LlmcurateError``."""
    state = {
        f"{kind}/{name}": value for kind, own in tensors.items() for name, value in own.items()
    }
    with ExitStack() as stack, _first_error():
        writer = _Writer(lambda: stack.enter_context(writing()), stack.close)
        dcp.save(state, storage_writer=writer, process_group=group)


def read_parts(stored: Stored, tensors: Mapping[str, Tensor]) -> None:
    """Fill ``tensors``, which may be split, with the stored tensors of the same names. Every
    process must call this."""
    with _first_error():
        dcp.load(dict(tensors), storage_reader=_Reader(stored))


@contextmanager
def _first_error() -> Iterator[None]:
    try:
        yield
    except CheckpointException as failed:
        error = next(iter(failed.failures.values()))[0]
        if isinstance(error, (LlmcurateError, OSError)):
            raise error from failed
        raise RunFailed(f"a part of a checkpoint cannot be written or read: {error}") from failed


def _done(value: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class _Writer(StorageWriter):
    def __init__(self, begin: Callable[[], tuple[Path, Sums]], end: Callable[[], None]) -> None:
        self.begin, self.end = begin, end
        self.sums: Sums = {}

    def reset(self, checkpoint_id: Any = None) -> None:
        """Do nothing: a writer serves one checkpoint."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: ``prepare_global_plan`` makes the folder."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        folder, self.sums = self.begin()
        count = len(plans)
        return [
            replace(plan, storage_data=(str(folder), f"{number:05d}-of-{count:05d}.safetensors"))
            for number, plan in enumerate(plans, 1)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        folder, ending = plan.storage_data
        items: dict[str, dict[str, WriteItem]] = {}
        for item in plan.items:
            kind, _, name = item.index.fqn.partition("/")
            items.setdefault(kind, {})[name] = item
        results = []
        for kind, own in items.items():
            path = Path(folder) / f"{kind}-{ending}"
            tensors = {name: cast(Tensor, planner.resolve_data(item)) for name, item in own.items()}
            places = {name: _place(item, tensors[name]) for name, item in own.items()}
            header = write_tensors(path, tensors, {"parts": json.dumps(places)})
            sync_path(path)
            written = (path.name, checksum(header))
            results += [
                WriteResult(index=item.index, size_in_bytes=0, storage_data=written)
                for item in own.values()
            ]
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        files = {result.storage_data for each in results for result in each}
        self.sums |= dict(sorted(files))
        self.end()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True


def _place(item: WriteItem, tensor: Tensor) -> dict[str, str | list[int]]:
    assert item.tensor_data is not None
    return {
        "offsets": list(item.tensor_data.chunk.offsets),
        "shape": list(item.tensor_data.size),
        "sum": tensor_checksum(tensor),
    }


class _Reader(StorageReader):
    def __init__(self, stored: Stored) -> None:
        self.stored = stored

    def reset(self, checkpoint_id: Any = None) -> None:
        """Do nothing: a reader serves one checkpoint."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        stored = self.stored
        return Metadata(
            {
                name: TensorStorageMetadata(
                    properties=TensorProperties(dtype=stored.dtypes[name]),
                    size=stored.shapes[name],
                    chunks=[
                        ChunkStorageMetadata(torch.Size(part.offsets), torch.Size(part.shape))
                        for part in parts
                    ],
                )
                for name, parts in stored.parts.items()
            }
        )

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Do nothing: ``stored`` is open already."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            index = item.storage_index
            offsets = tuple(index.offset or ())
            part = next(p for p in self.stored.parts[index.fqn] if p.offsets == offsets)
            box = zip(item.storage_offsets, item.lengths, strict=True)
            value = self.stored.read(part)[tuple(slice(n, n + size) for n, size in box)]
            target = planner.resolve_tensor(item).detach()
            target.copy_(value)
            planner.commit_tensor(item, target)
        return _done(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True
