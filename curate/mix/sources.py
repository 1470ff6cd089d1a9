"""Sources of a mix: named inputs, read as documents in one schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.formats.read_settings import ReadSettings
from llmcurate.base.errors import UsageError

SOURCE, EPOCH = "mix.source", "mix.epoch"  # columns of the mix
Batches = Iterator[pa.RecordBatch]


@dataclass
class Source:
    """name: in weights and tables; read: the documents, the same at every call; tally: what the
    last reading met (curate/corpus/direct_input.py); inputs: as given; files:
    their paths."""

    name: str
    read: Callable[[], Batches]
    tally: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    inputs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


def named(arguments: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Inputs by name, of `NAME=INPUT` or the last part of a path without its endings. UsageError
    for a name that stands twice."""
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
    """The name of an input: `wiki` for data/wiki.jsonl.zst, the folder's name for a folder."""
    whole = path.rstrip("/").rpartition("/")[2] or path
    if "://" not in path and whole in (".", "..", path) and Path(path).is_dir():
        return Path(path).resolve().name or path
    return whole if "://" not in path and Path(path).is_dir() else whole.partition(".")[0] or whole


def open_sources(
    inputs: dict[str, tuple[str, ...]], read: ReadSettings | None = None
) -> list[Source]:
    """The sources in order of name, with the columns of all of them.

    UsageError for an input that cannot be read, or that holds web pages.
    """
    from curate.corpus.direct_input import DirectInput
    from curate.formats.inputs import carried_columns
    from curate.formats.reading import plan_reading

    read = (read or ReadSettings()).model_copy(update={"batch_rows": 2000})
    plans = {name: plan_reading(inputs[name], read) for name in sorted(inputs)}
    for plan in plans.values():
        for file in plan.files:
            if file.holds_pages:
                raise UsageError(
                    f"mix: {file.path} holds web pages: make text of them with `llmcurate extract`"
                    " and give its folder"
                )
    files = [file for plan in plans.values() for file in plan.files]
    columns = carried_columns(files, 1000, columns=read.named)
    columns = {name: kind for name, kind in columns.items() if name not in (SOURCE, EPOCH)}
    sources = []
    for name, plan in plans.items():
        direct = DirectInput(replace(plan, columns=columns), read)
        source = Source(name, lambda: iter(()))
        source.read = _reading(source, direct)
        source.fingerprint = plan.fingerprint()
        source.inputs, source.files = inputs[name], tuple(f.path for f in plan.files)
        source.notices = plan.notices
        sources.append(source)
    return sources


def _reading(source: Source, direct: Any) -> Callable[[], Batches]:
    def read() -> Batches:
        yield from direct.batches(None)
        source.tally = direct.tally

    return read


def own_corpus(name: str, batches: Callable[..., Batches]) -> Source:
    """The documents that the steps of the same recipe kept, as a source."""
    source = Source(name, lambda: iter(()))

    def read() -> Batches:
        count = size = 0
        for batch in batches(None):
            old = [i for i, n in enumerate(batch.schema.names) if n in (SOURCE, EPOCH)]
            keep = [i for i in range(batch.num_columns) if i not in old]
            count += batch.num_rows
            size += batch["text"].nbytes
            yield batch.select(keep) if old else batch
        source.tally = {"read": count, "kept": count, "rejected": 0, "bytes_in": size}

    source.read = read
    return source
