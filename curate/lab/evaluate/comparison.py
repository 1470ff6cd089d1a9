"""Compare dedup methods, alone or one after another, on the same corpus: the documents, bytes and
tokens that each method keeps, the shares that it removes, its time and its memory. DCLM has such a
comparison (Li et al. 2024, appendix on deduplication); here it is made on the user's corpus.

Each method is a run in OUT/METHOD in its own process, because the peak memory of a process never
falls again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq

from curate.documents.attributes import read_schema, source_sql
from curate.documents.rejected import rejected_files
from curate.engines.worker import end_with
from curate.inspect.report.page import BYTES_A_TOKEN
from curate.inspect.results import Findings, check_folder
from curate.run.plan import make_plan
from curate.steps.recipe import Recipe, compose
from llmcurate.base.disk.database import literal, paths_literal, scratch_database
from llmcurate.base.disk.files import part_files
from llmcurate.base.disk.units import format_bytes, format_percent, format_scaled
from llmcurate.base.errors import LlmcurateError, RunFailed, TooMuchRemoved, UsageError
from llmcurate.base.messages import Message
from llmcurate.base.start import command
from llmcurate.base.terminal import say, table

DEFAULT = ("exact", "minhash", "exact+minhash")
ROWS = 256  # documents per tokenizer call
MEASURED = "measured.json"


@dataclass(frozen=True)
class Order(Message):
    """A request to run a dedup method on the inputs."""

    method: str
    inputs: list[str]
    sets: list[str]
    out: Path  # folder of the run
    workers: int
    quiet: bool
    parent: int  # process whose end also ends the run


@dataclass(frozen=True)
class Measured(Message):
    """The result of one dedup method."""

    method: str
    out: Path
    documents: int = 0  # number of input documents
    bytes: int = 0  # of text in the input
    kept: int = 0  # number of kept documents
    kept_bytes: int = 0  # of text in kept documents
    kept_ids: str = ""  # digest
    seconds: float | None = None  # None if the run took several attempts
    peak_parent: int | None = None  # bytes of memory; None as for seconds
    peak_worker: int | None = None  # bytes of memory; None as for seconds
    failed: str = ""  # reason if there is no result
    too_much: float | None = None  # share removed if `max_removal` stopped the run
    code: int | None = None  # exit code if the whole comparison must end


def recipe_of(method: str, sets: Iterable[str] = ()) -> Recipe:
    """Return the recipe of `llmcurate dedup --method METHOD` with the settings that apply to it."""
    from curate.dedup import methods

    steps = methods.steps_of(method)
    sections = {"read"}
    count: dict[str, int] = {}
    for step, _ in steps:
        count[step] = count.get(step, 0) + 1
        sections.add(step if count[step] == 1 else f"{step}#{count[step]}")
    settings = tuple(s for s in sets if s.partition("=")[0].strip().partition(".")[0] in sections)
    return compose("dedup", steps, settings)


def recipes_of(methods: Iterable[str], sets: Iterable[str]) -> dict[str, Recipe]:
    """Return {method: recipe}, with the settings `sets`. Raises UsageError for an unknown method or
    setting."""
    names = list(dict.fromkeys(m.strip() for m in methods if m.strip()))
    if not names:
        raise UsageError("--methods: name at least one, as in --methods exact,minhash")
    recipes = {name: recipe_of(name, sets) for name in names}
    labels = {"read", *(s.label for r in recipes.values() for s in r.steps)}
    for item in sets:
        section = item.partition("=")[0].strip().partition(".")[0]
        if section not in labels:
            known = ", ".join(sorted(labels))
            raise UsageError(f"--set {item}: no method has a section {section!r}; give {known}")
    return recipes


def folder_of(out: Path, method: str) -> Path:
    return out / method.replace(" ", "")


def measure(
    method: str, inputs: list[str], sets: tuple[str, ...], out: Path, workers: int, quiet: bool
) -> Measured:
    """Run a method into `out` in its own process and return its figures. If the run fails, the
    figures give the reason. Raises UsageError for wrong use and RunFailed for a locked folder."""
    order = Order(method, inputs, list(sets), out, workers, quiet, os.getpid())
    done = subprocess.run(
        command(__name__),
        input=order.to_json(),
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode < 0 or not done.stdout.strip():
        killed = done.returncode == -signal.SIGKILL
        why = "was killed, probably out of memory" if killed else f"ended with {done.returncode}"
        return Measured(method, out, failed=f"the run {why}")
    measured = Measured.from_json(done.stdout.splitlines()[-1])
    if measured.code is not None:
        error = UsageError if measured.code == 2 else RunFailed
        failure = error(f"{method}: {measured.failed}")
        failure.exit_code = measured.code
        raise failure
    return measured


def _run(order: Order) -> Measured:
    from curate.run.driver import run_planned
    from curate.run.plan import make_plan
    from curate.run.records import Options
    from llmcurate.base.disk.files import write_text
    from llmcurate.base.disk.process import peak_bytes

    record = order.out / MEASURED
    fresh = not (order.out / "ledger.db").exists()
    plan = make_plan(recipe_of(order.method, order.sets), order.inputs)
    outcome = run_planned(plan, order.out, Options(order.workers, order.quiet))
    first, last = outcome.stages[0], outcome.stages[-1]
    size = (first.kept, first.bytes_out, last.kept, last.bytes_out, outcome.kept_ids)
    measured = Measured(order.method, order.out, *size)
    if fresh:
        measured = replace(
            measured,
            seconds=round(outcome.seconds, 3),
            peak_parent=peak_bytes(),
            peak_worker=max(s.peak_bytes for s in outcome.stages),
        )
        costs = {n: getattr(measured, n) for n in ("seconds", "peak_parent", "peak_worker")}
        write_text(record, json.dumps({"plan": plan.digest, **costs}) + "\n")
        return measured
    if outcome.nothing_new and record.exists():
        costs = json.loads(record.read_text(encoding="utf-8"))
        if costs.pop("plan") == plan.digest:
            return replace(measured, **costs)
    record.unlink(missing_ok=True)
    return measured


@dataclass(frozen=True)
class Row:
    """One method's row in the comparison; figures are None if the method failed."""

    method: str
    documents: int | None  # number kept
    bytes: int | None  # of text kept
    tokens: int | None  # kept
    documents_removed: float | None  # fraction of the input
    bytes_removed: float | None  # fraction of the input
    seconds: float | None
    peak_parent: int | None  # bytes of memory
    peak_worker: int | None  # bytes of memory
    kept_ids: str
    note: str = ""


@dataclass(frozen=True)
class Comparison(Findings):
    """The comparison of some dedup methods on the same input."""

    NAME = "compare"
    TEMPLATE = "compare.html"
    SHOWN: ClassVar[dict[str, Any]] = {"bytes_a_token": BYTES_A_TOKEN}
    JSON = (
        "inputs", "settings=sets", "documents", "bytes", "tokens", "tokens_by", "methods=rows",
        "overlap",
    )  # fmt: skip
    inputs: list[str]
    documents: int  # number of input documents
    bytes: int
    tokens: int
    measured: bool  # True if a tokenizer counted the input's tokens
    rows: list[Row]
    overlap: Overlap | None
    sets: list[str]
    failed: bool = False

    @property
    def tokens_by(self) -> str:
        """The source of token counts: `tokenizer`, or a rule such as `4 bytes per token`."""
        return "tokenizer" if self.measured else f"{BYTES_A_TOKEN:g} bytes per token"

    def text(self) -> str:
        tokens = "counted" if self.measured else f"estimated, {BYTES_A_TOKEN:g} bytes per token"
        head = (
            "method",
            "documents",
            "removed",
            "text",
            "removed",
            "tokens",
            "seconds",
            "parent",
            "worker",
        )
        size = (f"{self.documents:,}", "", format_bytes(self.bytes), "")
        rows: list[tuple[str, ...]] = [("(input)", *size, _scaled(self.tokens), *[""] * 4)]
        rows += [_cells(row) for row in self.rows]
        lines = table((*head, "kept ids"), rows, left=(0, 9))
        lines.append(f"tokens: {tokens}; parent, worker: peak memory of a process")
        lines += [f"{row.method}: {row.note}" for row in self.rows if row.note]
        both = self.overlap
        if both is not None:
            lines += [
                "",
                "documents removed by the method on the left: the share that each other removes",
            ]
            lines += _matrix(both.methods, both.shares_removed)
            if both.cuts:
                lines += ["", "the same for documents that were removed or cut:"]
                lines += _matrix(both.methods, both.shares_changed)
        return "\n".join(lines)


def compare(
    inputs: list[str],
    methods: list[str],
    sets: tuple[str, ...],
    out: Path,
    tokenizer: Path | None = None,
    workers: int = 0,
    quiet: bool = False,
) -> Comparison:
    """Run every method into OUT/METHOD and compare the results. A second call resumes the runs.
    Raises UsageError for a wrong method, setting or input, before anything runs."""
    recipes = recipes_of(methods, sets)
    for recipe in recipes.values():
        make_plan(recipe, inputs)
    check_folder(out)
    count = _counter(tokenizer)
    runs: list[Measured] = []
    for method in recipes:
        say(f"method {method}", quiet)
        runs.append(measure(method, inputs, sets, folder_of(out, method), workers, quiet))
        if runs[-1].failed:
            say(f"{method}: {runs[-1].failed}", quiet)
    whole = [run for run in runs if not run.failed]
    documents, size = (whole[0].documents, whole[0].bytes) if whole else (0, 0)
    tokens, measured = 0, tokenizer is not None
    if whole:
        # All text of the input: the documents that a method kept and those that it rejected.
        tokens = count(_input_texts(whole[0].out), size) if measured else count((), size)
    rows = [_row(run, count) for run in runs]
    left = {m.method: (m.out, [s.label for s in recipes[m.method].steps]) for m in whole}
    both = overlap(left, out / ".spill-compare") if len(left) > 1 else None
    failed = any(run.failed and run.too_much is None for run in runs)
    comparison = Comparison(
        inputs, documents, size, tokens, measured, rows, both, list(sets), failed
    )
    comparison.write(out)
    return comparison


def _row(run: Measured, count: Any) -> Row:
    if run.failed:
        note = run.failed
        if run.too_much is not None:
            note = f"stopped by max_removal: {note}"
        return Row(run.method, *(None,) * 8, "", note)
    size = run.kept_bytes
    return Row(
        run.method,
        run.kept,
        size,
        count(_texts(part_files(run.out / "corpus")), size),
        _share(run.documents - run.kept, run.documents),
        _share(run.bytes - size, run.bytes),
        run.seconds,
        run.peak_parent,
        run.peak_worker,
        run.kept_ids,
        "" if run.seconds is not None else "time and memory unknown: the run was resumed",
    )


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def _texts(paths: Iterable[Path]) -> Iterator[list[str]]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS, columns=["text"], use_threads=False):
                yield [t or "" for t in batch["text"].to_pylist()]


def _input_texts(out: Path) -> Iterator[list[str]]:
    from curate.corpus.manifests import part_path
    from curate.run.plan import stage_folder
    from curate.run.records import read_record

    record = read_record(out)
    folder = stage_folder(out, record["stages"][0]["folder"])
    return _texts(part_path(folder, part, "kept") for part in range(record["partitions"]))


def _counter(tokenizer: Path | None) -> Any:
    if tokenizer is None:
        return lambda batches, size: round(size / BYTES_A_TOKEN)
    from tokenize_kit.formats.tekken import load_json

    path = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    try:
        loaded = load_json(path)
    except LlmcurateError as error:
        raise UsageError(str(error)) from None

    def count(batches: Iterator[list[str]], size: int) -> int:
        return sum(
            len(encoding)
            for texts in batches
            for encoding in loaded.encode_batch_fast(texts, add_special_tokens=False)
        )

    return count


def _cells(row: Row) -> tuple[str, ...]:
    if row.documents is None or row.bytes is None or row.tokens is None:
        return (row.method, *["-"] * 8, "")
    return (
        row.method,
        f"{row.documents:,}",
        format_percent(row.documents_removed),
        format_bytes(row.bytes),
        format_percent(row.bytes_removed),
        _scaled(row.tokens),
        "-" if row.seconds is None else f"{row.seconds:.1f}",
        "-" if row.peak_parent is None else format_bytes(row.peak_parent),
        "-" if row.peak_worker is None else format_bytes(row.peak_worker),
        row.kept_ids[:12],
    )


def _scaled(number: int) -> str:
    return format_scaled(number).strip()


def _matrix(methods: list[str], values: list[list[float | None]]) -> list[str]:
    rows = [[m, *map(format_percent, row)] for m, row in zip(methods, values, strict=True)]
    return table(("", *methods), rows)


@dataclass(frozen=True)
class Overlap:
    """The numbers of documents that methods remove, and that two methods both remove. Fields with
    `changed` count documents that were removed or cut. In a matrix [a][b], a and b are methods."""

    JSON = (
        "methods", "removed", "removed_by_both=both", "share_removed_too=shares_removed", "changed",
        "changed_by_both=both_changed", "share_changed_too=shares_changed",
    )  # fmt: skip
    methods: list[str]
    removed: list[int]
    both: list[list[int]]  # [a][b]: removed by a and by b
    changed: list[int]
    both_changed: list[list[int]]  # [a][b]: changed by a and by b

    @property
    def cuts(self) -> bool:
        """True if any method cut passages from kept documents."""
        return self.changed != self.removed

    @property
    def shares_removed(self) -> list[list[float | None]]:
        """A matrix: of the documents that method a removed, [a][b] is the share that method b
        removed too."""
        return shares(self.removed, self.both)

    @property
    def shares_changed(self) -> list[list[float | None]]:
        """The same matrix as `shares_removed`, but for documents that were removed or cut."""
        return shares(self.changed, self.both_changed)


def shares(sizes: list[int], both: list[list[int]]) -> list[list[float | None]]:
    return [
        [round(n / sizes[a], 6) if sizes[a] else None for n in row] for a, row in enumerate(both)
    ]


def overlap(runs: Mapping[str, tuple[Path, list[str]]], spill: Path, threads: int = 1) -> Overlap:
    """Return the overlap of finished runs over the same input. Documents are matched by id. `runs`
    maps a method to (folder of its run, labels of its steps)."""
    methods = list(runs)
    with scratch_database(spill, threads) as db:
        db.execute("CREATE TABLE gone (nth INTEGER, id VARCHAR, removed BOOLEAN)")
        for nth, (out, labels) in enumerate(runs.values()):
            _add(db, nth, out, labels)
        pairs = db.execute(
            """SELECT a.nth, b.nth, count(*), count(*) FILTER (a.removed AND b.removed)
            FROM gone a JOIN gone b USING (id) GROUP BY 1, 2"""
        ).fetchall()
    size = len(methods)
    both = [[0] * size for _ in methods]
    changed = [[0] * size for _ in methods]
    for a, b, any_, removed in pairs:
        changed[a][b], both[a][b] = any_, removed
    return Overlap(
        methods,
        [both[a][a] for a in range(size)],
        both,
        [changed[a][a] for a in range(size)],
        changed,
    )


def _add(db: Any, nth: int, out: Path, labels: list[str]) -> None:
    steps = "[" + ", ".join(literal(label) for label in labels) + "]"
    rejected = rejected_files(out)
    kept = part_files(out / "corpus")
    if rejected:
        db.execute(
            f"""INSERT INTO gone SELECT {nth}, id, true FROM read_parquet({paths_literal(rejected)})
            WHERE list_contains({steps}, step)"""
        )
    if kept and "edits" in read_schema(kept[0]).names:
        of_steps = f"list_contains({steps}, e.step)"
        db.execute(
            f"""INSERT INTO gone SELECT {nth}, id, false FROM {source_sql(kept)}
            WHERE len(list_filter(edits, lambda e: {of_steps})) > 0"""
        )


def main() -> None:
    """Read an `Order` from stdin, run it, and write a `Measured` to stdout, both as JSON."""
    order = Order.from_json(sys.stdin.read())
    answer_fd = os.dup(1)
    os.dup2(2, 1)  # prints go to stderr, so they cannot mix with the answer
    end_with(order.parent)
    try:
        answer = _run(order)
    except TooMuchRemoved as error:
        answer = Measured(order.method, order.out, failed=str(error), too_much=error.share)
    except LlmcurateError as error:
        code = error.exit_code if error.exit_code != 1 else None
        answer = Measured(order.method, order.out, failed=str(error), code=code)
    except KeyboardInterrupt:
        os._exit(130)
    os.write(answer_fd, answer.to_json() + b"\n")
