"""Hold tokenizers against the documents of some inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.corpus.direct import DirectInput
from curate.disk.atomic import write_text
from curate.errors import CurateError, RunFailed, UsageError
from curate.formats.inputs import plan_inputs
from curate.formats.reading import ReadSettings
from curate.terminal.progress import say
from curate.text.buffers import as_large_string, text_buffers

GROUPS = ("lang", "source")
ROWS = 500  # texts at a time: their tokens and places are in memory
Buffers = tuple[Any, Any, dict[str, list[str | None]]]


class Documents:
    """The documents with text of some inputs, read as often as `batches` is called."""

    def __init__(self, inputs: list[str], quiet: bool = False) -> None:
        plan = plan_inputs(inputs, ReadSettings().partition_bytes)
        web = [f for f in plan.files if f.format == "html"]
        web += [f for f in plan.files if f.format == "archive" and ".wet" not in f.rel]
        if web:
            raise UsageError(
                f"input {web[0].path} holds web pages, not text: run `llmcurate extract` first"
            )
        for notice in plan.notices:
            say(notice, quiet)
        self._direct = DirectInput(plan, ReadSettings())

    def batches(self) -> Iterator[Buffers]:
        """(data: uint8[], offsets: int64[rows + 1], labels by group), in input order."""
        for batch in self._direct.batches(None):
            for first in range(0, batch.num_rows, ROWS):
                part = batch.slice(first, ROWS)
                labels = {
                    name: part.column(name).cast(pa.string()).to_pylist()
                    for name in GROUPS
                    if name in part.schema.names
                }
                yield *text_buffers(as_large_string(part.column("text"))), labels

    @property
    def tally(self) -> dict[str, Any]:
        """What the last reading met: documents, and what could not be read."""
        found = self._direct.tally
        return {name: found[name] for name in ("read", "kept", "rejected", "corrupt")}


def evaluate(
    tokenizers: list[Path],
    inputs: list[str],
    show: int,
    quiet: bool,
    pattern: str | None = None,
    baseline: Path | None = None,
) -> dict[str, Any]:
    """What `tokenize_kit.judge.compare` says, with the inputs and what was read of them.

    baseline: one of the tokenizers, or one more, which then comes last. UsageError where a
    tokenizer cannot be read or no document has text.
    """
    from tokenize_kit.errors import TokenizerError
    from tokenize_kit.judge.compare import compare

    documents = Documents(inputs, quiet)
    if pattern is not None and not any(
        _is_ranks(p) for p in [*tokenizers, *filter(None, [baseline])]
    ):
        raise UsageError("--pattern is for .tiktoken files, and none is given; leave it out")
    if baseline is not None and baseline not in tokenizers:
        tokenizers = [*tokenizers, baseline]
    against = None if baseline is None else tokenizers.index(baseline)
    try:
        found = compare(tokenizers, documents.batches(), GROUPS, show, pattern, against)
    except TokenizerError as error:
        raise translated(error) from None
    if not found["tokenizers"][0]["bytes"]:
        refused = documents.tally["rejected"] + documents.tally["corrupt"]
        why = f": {refused:,} records could not be taken" if refused else ""
        raise UsageError(f"no document with text in the input{why}")
    for row, name in zip(found["tokenizers"], names(tokenizers), strict=True):
        row["name"] = name
    if against is not None:
        found["baseline"] = found["tokenizers"][against]["name"]
    return {"inputs": inputs, **documents.tally, **found}


def _is_ranks(path: Path) -> bool:
    return path.suffix == ".tiktoken"


def translated(error: Any) -> CurateError:
    """A TokenizerError as an error of the command line."""
    return (UsageError if error.exit_code == 2 else RunFailed)(str(error))


def names(paths: list[Path]) -> list[str]:
    """Short names that differ: the folder of a tokenizer.json, the stem of another file, else the
    paths as they were given."""
    short = []
    for path in paths:
        folder = path.name in ("tokenizer.json", "tokenizer.model")
        own = path.resolve().parent.name if folder else path.resolve().name
        short.append(
            own.removesuffix(".json").removesuffix(".model").removesuffix(".tiktoken") or str(path)
        )
    return short if len(set(short)) == len(short) else [str(p) for p in paths]


def write(found: dict[str, Any], out: Path) -> list[Path]:
    """OUT/evaluation.json and OUT/evaluate.html."""
    from curate.inspect.evaluate.tokenizers_page import render

    out.mkdir(parents=True, exist_ok=True)
    data = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    paths = [out / "evaluation.json", out / "evaluate.html"]
    for path, content in zip(paths, (data, render(found)), strict=True):
        write_text(path, content.encode("utf-8", "replace").decode("utf-8"))
    return paths
