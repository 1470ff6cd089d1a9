"""`llmcurate dedup compare`: what each method leaves of the same corpus, at what cost.

The comparison of DCLM (Li et al. 2024, appendix on deduplication): documents, tokens and bytes left
and the share removed, of methods alone and one after the other, on a corpus of one's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from curate.disk.atomic import write_text
from curate.errors import UsageError
from curate.inspect.compare.method_run import Measured, folder_of, measure, recipes_of
from curate.inspect.compare.overlap import Overlap, overlap
from curate.inspect.report.page_funnel import BYTES_A_TOKEN
from curate.run.driver import make_plan
from curate.terminal.progress import say

DEFAULT = ("exact", "minhash", "exact+minhash")
ROWS = 256  # documents tokenized at once


@dataclass(frozen=True)
class Row:
    """What one method left. removed shares are of what reached it; None: there is no result."""

    method: str
    documents: int | None
    bytes: int | None
    tokens: int | None
    documents_removed: float | None
    bytes_removed: float | None
    seconds: float | None
    peak_parent: int | None
    peak_worker: int | None
    kept_ids: str
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """documents, bytes, tokens: of the input; measured: whether a tokenizer counted the tokens."""

    inputs: list[str]
    documents: int
    bytes: int
    tokens: int
    measured: bool
    rows: list[Row]
    overlap: Overlap | None
    sets: list[str]
    failed: bool = False

    def dump(self) -> dict[str, Any]:
        """The content of compare.json."""
        return {
            "inputs": self.inputs,
            "settings": self.sets,
            "documents": self.documents,
            "bytes": self.bytes,
            "tokens": self.tokens,
            "tokens_by": "tokenizer" if self.measured else f"{BYTES_A_TOKEN:g} bytes a token",
            "methods": [asdict(row) for row in self.rows],
            "overlap": self.overlap.dump() if self.overlap else None,
        }


def compare(
    inputs: list[str],
    methods: list[str],
    sets: tuple[str, ...],
    out: Path,
    tokenizer: Path | None = None,
    workers: int = 0,
    quiet: bool = False,
) -> Comparison:
    """Runs every method into OUT/METHOD and compares what they left; runs again resume.

    UsageError where a method, a setting or an input is wrong, before anything runs.
    """
    recipes = recipes_of(methods, sets)
    check_text(inputs)
    for recipe in recipes.values():
        make_plan(recipe, inputs)
    if out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    count = _counter(tokenizer)
    done: list[Measured] = []
    for method, recipe in recipes.items():
        say(f"method {method}", quiet)
        mine = tuple(s for s in sets if _is_of(s, [x.label for x in recipe.steps]))
        done.append(measure(method, inputs, mine, folder_of(out, method), workers, quiet))
        if done[-1].failed:
            say(f"{method}: {done[-1].failed}", quiet)
    found = _compared(inputs, sets, out, recipes, done, count, tokenizer is not None)
    _write(found, out)
    return found


def check_text(inputs: list[str]) -> None:
    """UsageError where the input holds web pages: every method would extract them anew."""
    from curate.formats.inputs import find_files

    if any(f.format in ("archive", "html") for f in find_files(inputs)[0]):
        raise UsageError(
            "the input holds web pages: make text of them once with `llmcurate extract` and give"
            " its corpus"
        )


def _is_of(item: str, labels: list[str]) -> bool:
    return item.partition("=")[0].strip().partition(".")[0] in ("read", *labels)


def _compared(
    inputs: list[str],
    sets: tuple[str, ...],
    out: Path,
    recipes: dict[str, Any],
    done: list[Measured],
    count: Any,
    measured: bool,
) -> Comparison:
    whole = [m for m in done if not m.failed]
    documents, size = (whole[0].documents, whole[0].bytes) if whole else (0, 0)
    tokens = 0
    if whole:
        # All text of the input: what a method kept, and what it rejected.
        tokens = count(_input_texts(whole[0].out), size) if measured else count((), size)
    rows = [_row(m, count) for m in done]
    runs = {m.method: (m.out, [s.label for s in recipes[m.method].steps]) for m in whole}
    both = overlap(runs, out / ".spill-compare") if len(runs) > 1 else None
    failed = any(m.failed and m.too_much is None for m in done)
    return Comparison(inputs, documents, size, tokens, measured, rows, both, list(sets), failed)


def _row(found: Measured, count: Any) -> Row:
    if found.failed:
        note = found.failed
        if found.too_much is not None:
            note = f"stopped by its guard: {note}"
        nothing = (None,) * 8
        return Row(found.method, *nothing, "", note)
    totals = found.totals
    size = totals["bytes_out"]
    return Row(
        found.method,
        totals["kept"],
        size,
        count(_texts(found.out / "corpus"), size),
        _share(found.documents - totals["kept"], found.documents),
        _share(found.bytes - size, found.bytes),
        found.seconds,
        found.peak_parent,
        found.peak_worker,
        totals["kept_ids"],
        "" if found.seconds is not None else "time and memory unknown: done in several goes",
    )


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def _texts(folder: Path) -> Iterator[list[str]]:
    for path in sorted(folder.glob("part-*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS, columns=["text"], use_threads=False):
                yield [t or "" for t in batch["text"].to_pylist()]


def _input_texts(out: Path) -> Iterator[list[str]]:
    """The text that reached a method, from its first stage."""
    from curate.corpus.stage_files import part_path
    from curate.run.records import read_record

    record = read_record(out)
    folder = out / "stages" / record["stages"][0]["folder"]
    for part in range(record["partitions"]):
        with pq.ParquetFile(part_path(folder, part, "kept")) as file:
            for batch in file.iter_batches(ROWS, columns=["text"], use_threads=False):
                yield [t or "" for t in batch["text"].to_pylist()]


def _counter(tokenizer: Path | None) -> Any:
    """(batches of texts, bytes) -> tokens; without a tokenizer the report's rule of thumb."""
    if tokenizer is None:
        return lambda batches, size: round(size / BYTES_A_TOKEN)
    from tokenize_kit.errors import TokenizerError
    from tokenize_kit.formats.tokenizer_json import load_tokenizer

    path = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    try:
        loaded = load_tokenizer(path)
    except TokenizerError as error:
        raise UsageError(str(error)) from None

    def count(batches: Iterator[list[str]], size: int) -> int:
        return sum(
            len(encoding)
            for texts in batches
            for encoding in loaded.encode_batch_fast(texts, add_special_tokens=False)
        )

    return count


def _write(found: Comparison, out: Path) -> None:
    """OUT/compare.json and OUT/compare.html."""
    from curate.inspect.compare.page import render

    out.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("compare.json", json.dumps(found.dump(), indent=1, ensure_ascii=False) + "\n"),
        ("compare.html", render(found)),
    ):
        write_text(out / name, text.encode("utf-8", "replace").decode("utf-8"))
