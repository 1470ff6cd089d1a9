"""Sources of a mix: named inputs, read as documents with the same columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from curate.documents.attributes import unpack
from curate.formats.read_settings import ReadSettings
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from curate.corpus.direct_input import DirectInput

SOURCE, EPOCH = "mix.source", "mix.epoch"  # columns of the mix
Batches = Iterator[pa.RecordBatch]


@dataclass
class Source:
    """A source of a mix. The field `own` is empty until the documents are read."""

    name: str  # in weights and tables
    read: Callable[[], Batches]  # returns the documents, the same at every call
    direct: DirectInput | None = None  # the input, with counts of the last reading
    fingerprint: str = ""
    inputs: tuple[str, ...] = ()  # as the user gave them
    files: tuple[str, ...] = ()  # paths
    notices: tuple[str, ...] = ()
    own: set[str] = field(default_factory=set)  # columns `a.b` that are no attributes


def named(arguments: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return {name: inputs} for arguments of the form NAME=INPUT or PATH. A path alone is named
    after its file, without suffixes. Raises UsageError if two inputs have the same name."""
    inputs: dict[str, tuple[str, ...]] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or not name or "/" in name or Path(argument).exists():
            name, path = name_of(argument), argument
        if name in inputs:
            raise UsageError(f"mix: two sources are called {name!r}; write NAME={path} for one")
        inputs[name] = (path,)
    return inputs


def name_of(path: str) -> str:
    """Return the name of an input: `wiki` for data/wiki.jsonl.zst, a folder's name for a folder."""
    whole = path.rstrip("/").rpartition("/")[2] or path
    if "://" not in path and whole in (".", "..", path) and Path(path).is_dir():
        return Path(path).resolve().name or path
    return whole if "://" not in path and Path(path).is_dir() else whole.partition(".")[0] or whole


def open_sources(
    inputs: dict[str, tuple[str, ...]], read: ReadSettings | None = None
) -> list[Source]:
    """Return the sources sorted by name. Each source has the columns of all sources. Raises
    UsageError for an input that cannot be read or that holds web pages."""
    from curate.corpus.direct_input import DirectInput
    from curate.formats.inputs import carried_columns
    from curate.formats.reading import plan_reading

    read = (read or ReadSettings()).model_copy(update={"batch_rows": 2000})
    plans = {name: plan_reading(inputs[name], read) for name in sorted(inputs)}
    for plan in plans.values():
        for file in plan.files:
            if file.holds_pages:
                raise UsageError(
                    f"mix: {file.path} holds web pages: extract their text with `llmcurate extract`"
                    " and give its output folder"
                )
    files = [file for plan in plans.values() for file in plan.files]
    columns = carried_columns(files, 1000, columns=read.named)
    columns = {name: kind for name, kind in columns.items() if name not in (SOURCE, EPOCH)}
    sources = []
    for name, plan in plans.items():
        direct = DirectInput(replace(plan, columns=columns), read)
        read_all = partial(direct.batches, None)
        files_of = tuple(file.path for file in plan.files)
        fingerprint = plan.fingerprint()
        sources.append(
            Source(
                name, read_all, direct, fingerprint, inputs[name], files_of, plan.notices,
                set(plan.own),
            )
        )  # fmt: skip
    return sources


def own_corpus(name: str, batches: Callable[..., Batches]) -> Source:
    """Return a source with the documents that the recipe itself keeps, after its steps."""

    own: set[str] = set()

    def documents() -> Batches:
        for batch in batches(None):
            own.update(batch.schema.names)
            batch = unpack(batch)
            yield batch.select([n for n in batch.schema.names if n not in (SOURCE, EPOCH)])

    return Source(name, documents, own=own)
