"""Hold tokenizers against the documents of some inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.atomic import write_text
from curate.direct import DirectInput
from curate.errors import CurateError, RunFailed, UsageError
from curate.formats.inputs import plan_inputs
from curate.plan import RunPlan
from curate.progress import say
from curate.recipe import build
from curate.text.buffers import as_large_string, text_buffers

GROUPS = ("lang", "source")
ROWS = 500  # texts at a time: their tokens and places are in memory
Buffers = tuple[Any, Any, dict[str, list[str | None]]]


class Documents:
    """The documents with text of some inputs, read as often as `batches` is called."""

    def __init__(self, inputs: list[str], quiet: bool = False) -> None:
        recipe = build("tokenizer", [])
        plan = plan_inputs(inputs, recipe.read.partition_bytes)
        web = [f for f in plan.files if f.format == "html"]
        web += [f for f in plan.files if f.format == "archive" and ".wet" not in f.rel]
        if web:
            raise UsageError(
                f"input {web[0].path} holds web pages, not text: run `llmcurate extract` first"
            )
        for notice in plan.notices:
            say(notice, quiet)
        self._direct = DirectInput(RunPlan(recipe, plan, [], []))

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


def evaluate(tokenizers: list[Path], inputs: list[str], show: int, quiet: bool) -> dict[str, Any]:
    """What `tokenize_kit.judge.compare` says, with the inputs and what was read of them.

    UsageError where a tokenizer cannot be read or no document has text.
    """
    from tokenize_kit.errors import TokenizerError
    from tokenize_kit.judge.compare import compare

    documents = Documents(inputs, quiet)
    try:
        found = compare(tokenizers, documents.batches(), GROUPS, show)
    except TokenizerError as error:
        raise translated(error) from None
    if not found["tokenizers"][0]["bytes"]:
        raise UsageError("no document with text in the input")
    for row, name in zip(found["tokenizers"], names(tokenizers), strict=True):
        row["name"] = name
    return {"inputs": inputs, **documents.tally, **found}


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
        short.append(own.removesuffix(".json").removesuffix(".model") or str(path))
    return short if len(set(short)) == len(short) else [str(p) for p in paths]


def write(found: dict[str, Any], out: Path) -> list[Path]:
    """OUT/evaluation.json and OUT/evaluate.html."""
    from curate.tokenizer.page import render

    out.mkdir(parents=True, exist_ok=True)
    data = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    paths = [out / "evaluation.json", out / "evaluate.html"]
    for path, content in zip(paths, (data, render(found)), strict=True):
        write_text(path, content.encode("utf-8", "replace").decode("utf-8"))
    return paths
