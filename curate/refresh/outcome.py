"""The options and the outcome of a refresh. An outcome is shown as text, JSON, metrics or logs."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from curate.refresh.forgetting import Scrubbed
from curate.run.records import Options
from llmcurate.base.disk.files import write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.messages import Message
from llmcurate.base.terminal import say

MOST_NAMED = 10  # most damaged inputs named in a line


@dataclass
class RefreshOptions(Options):
    """The options of a refresh. `changed` and `damaged` decide which inputs are ingested."""

    changed: str = "leave"  # how to treat changed inputs: leave, new, skip
    damaged: str = "leave"  # how to treat inputs whose end cannot be read: leave, take
    keep: int | None = None  # number of newest snapshots
    rebuild: bool = False
    abandon: bool = False
    products: bool = False  # make the recipe's products from the whole snapshot
    now: datetime | None = None  # time for the snapshot's name; the clock's by default


@dataclass(frozen=True)
class Totals(Message):
    """The totals in run.json that a refresh reports."""

    read: int = 0
    kept: int = 0
    rejected: int = 0
    corrupt: int = 0
    files_without_documents: int = 0
    misfits: int = 0
    by_rule: dict[str, int] = field(default_factory=dict)
    nothing_kept: str | None = None


@dataclass(frozen=True)
class Corpus:
    """The size of a snapshot's corpus."""

    documents: int = 0
    text_bytes: int = 0
    ids: str = ""  # hash of the set of the documents' ids, as `kept_ids` in run.json


@dataclass
class Refreshed:
    """The outcome of a refresh."""

    JSON = (
        *("kind", "snapshot=name", "inputs", "known_inputs=unchanged", "totals.read"),
        *("totals.kept", "totals.rejected", "totals.corrupt", "totals.misfits", "totals.by_rule"),
        *("totals.nothing_kept", "forgotten", "superseded", "emptied=scrubbed.documents"),
        *("emptied_runs=scrubbed.runs", "unsearchable=scrubbed.indexes"),
        *("corpus_documents=corpus.documents", "corpus_text_bytes=corpus.text_bytes"),
        *("kept_ids=corpus.ids", "snapshots", "removed_snapshots", "seconds", "home", "products"),
        *("totals.files_without_documents", "damaged", "changed", "notices"),
    )
    home: Path
    kind: str = "nothing"  # run, rebuild, forget, rollback or nothing
    name: str | None = None
    back_to: str | None = None  # snapshot of a rollback without what was forgotten since
    inputs: int = 0
    unchanged: int = 0
    totals: Totals = Totals()
    corpus: Corpus = Corpus()
    forgotten: int = 0
    superseded: int = 0
    removed_snapshots: list[str] = field(default_factory=list)
    snapshots: int = 0
    seconds: float = 0.0
    products: Path | None = None  # folder of the products, if requested
    scrubbed: Scrubbed = field(default_factory=Scrubbed)  # forgotten documents removed from runs
    built: bool = False  # True if a product was made
    damaged: dict[str, str] = field(default_factory=dict)  # inputs left out -> reason
    changed: list[str] = field(default_factory=list)  # inputs that changed and were not read again
    notices: list[str] = field(default_factory=list)  # about inputs, such as the files skipped

    @property
    def new(self) -> bool:
        return self.kind != "nothing" or self.built

    @property
    def damage(self) -> str:
        """Return a line on the inputs that were left out, or an empty string."""
        damaged = [f"{path} ({what})" for path, what in self.damaged.items()]
        advice = "--changed new ingests them as new documents, --changed skip hides this"
        fates = {
            "damaged": ("left out until complete", damaged),
            "changed": (f"left as ingested ({advice})", self.changed),
        }
        return "; ".join(
            f"{counted(len(paths), f'{kind} input')}, {fate}: {', '.join(paths[:MOST_NAMED])}"
            for kind, (fate, paths) in fates.items()
            if paths
        )

    def line(self) -> str:
        """Return the outcome in one line for people."""
        return "; ".join(filter(None, (self._line(), self.damage)))

    def _line(self) -> str:
        where = self.name or "no snapshot yet"
        documents = counted(self.corpus.documents, "document")
        if self.kind == "nothing":
            stays = f"{self.name} stays" if self.name else where
            stays += f"; products in {self.products}" if self.built else ""
            return f"{self.home}: nothing new among {counted(self.unchanged, 'input')}; {stays}"
        if self.kind == "rollback":
            return f"{self.home}: back to {where}, {documents}"
        older = counted(self.superseded, "older version")
        notes = f", {older} replaced" if self.superseded else ""
        notes += f", {self.forgotten:,} forgotten" if self.forgotten else ""
        if self.kind == "forget":
            forgotten = counted(self.forgotten, "document")
            if self.back_to:
                new = f"{forgotten} forgotten since then: new snapshot {where}"
                return f"{self.home}: back to {self.back_to}; {new}, {documents}"
            return f"{where}: {forgotten} forgotten; corpus {documents}"
        t = self.totals
        without = counted(t.files_without_documents, "file")
        notes = f", {without} without a document{notes}" if t.files_without_documents else notes
        why = f" ({t.nothing_kept})" if t.nothing_kept else ""
        misfits = f", {counted(t.misfits, 'value')} of another type in `extra`" if t.misfits else ""
        return (
            f"{where}: {counted(self.inputs, 'new input')}, {counted(t.read, 'document')} read,"
            f" {t.kept:,} kept{why}{misfits}{notes}; corpus {documents}; {self.seconds:.1f} s"
        )


FIELDS = "fields"  # attribute of a log record with extra keys of its JSON object


class JsonFormatter(logging.Formatter):
    """Formats a log record as a JSON object with time, level and message."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc)
        line = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        return json.dumps(line, ensure_ascii=True)


class LoggedLines(io.TextIOBase):
    """A replacement for stderr that makes a log record of every line."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger, self._rest = logger, ""

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._logger.info("%s", line)
        return len(text)

    def end(self) -> None:
        self.write("\n")


@contextmanager
def json_logs(wanted: bool) -> Iterator[logging.Logger | None]:
    """Turn all output to stderr into JSONL, and yield the logger that writes it. If not `wanted`,
    change nothing and yield None."""
    if not wanted:
        yield None
        return
    stderr = sys.stderr
    logger = logging.Logger("llmcurate.refresh")
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    lines = LoggedLines(logger)
    sys.stderr = lines
    try:
        yield logger
    finally:
        lines.end()
        sys.stderr = stderr


def call_on_failure(command: str | None, home: Path, error: str, code: int) -> None:
    """Run a shell command after a failure. If it fails, print a line and keep the exit code."""
    if command:
        variables = {"HOME": str(home), "ERROR": error, "EXIT_CODE": str(code)}
        values = {f"LLMCURATE_{k}": v.replace("\0", " ") for k, v in variables.items()}
        env = {**os.environ, **values}
        done = subprocess.run(["sh", "-c", command], env=env, stdin=subprocess.DEVNULL)
        if done.returncode:
            say(f"--on-failure: the command ended with exit code {done.returncode}")


PREFIX = "llmcurate_refresh_"
GAUGES = {
    "exit_code": "Exit code of the last call: 0 new data, 3 nothing new, 65 input left out.",
    "damaged_inputs": "Inputs left out because their end cannot be read.",
    "changed_inputs": "Inputs that changed since they were ingested; the changes are not ingested.",
    "last_call_timestamp_seconds": "Time when the last call ended.",
    "last_success_timestamp_seconds": "Time when a call last ended with exit code 0, 3 or 65.",
    "last_snapshot_timestamp_seconds": "Time when a call last made a snapshot.",
    "duration_seconds": "Duration of the last call in seconds.",
    "inputs": "New inputs of the last snapshot.",
    "documents_read": "Documents read for the last snapshot.",
    "documents_kept": "Documents kept for the last snapshot.",
    "documents_rejected": "Documents rejected for the last snapshot.",
    "corpus_documents": "Documents in the current snapshot.",
    "corpus_text_bytes": "Bytes of text in the current snapshot.",
    "snapshots": "Snapshots that exist.",
}


def write_metrics(
    path: Path, home: Path, code: int, seconds: float, done: Refreshed | None
) -> None:
    """Write the metrics file for Prometheus' textfile collector. After a failure, `done` is None,
    and values that are then unknown, such as the number of documents, stay as they were in the
    file."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    now = round(time.time(), 3)
    values = _read_metrics(path)
    values |= {
        "exit_code": code,
        "last_call_timestamp_seconds": now,
        "duration_seconds": round(seconds, 3),
    }
    if done is not None:
        values["last_success_timestamp_seconds"] = now
        values |= {f"corpus_{n}": getattr(done.corpus, n) for n in ("documents", "text_bytes")}
        values |= {"snapshots": done.snapshots}
        values |= {f"{n}_inputs": len(getattr(done, n)) for n in ("damaged", "changed")}
        if done.kind in ("run", "rebuild"):
            values |= {
                f"documents_{n}": getattr(done.totals, n) for n in ("read", "kept", "rejected")
            }
            values["inputs"] = done.inputs
        if done.kind != "nothing":
            values["last_snapshot_timestamp_seconds"] = now
    registry = CollectorRegistry()
    for name, about in GAUGES.items():
        if name in values:
            gauge = Gauge(PREFIX + name, about, ["home"], registry=registry)
            gauge.labels(home=str(home)).set(values[name])
    try:
        write_text(path, generate_latest(registry).decode())
    except OSError as error:
        say(f"--metrics {path}: {error.strerror}")


def _read_metrics(path: Path) -> dict[str, float]:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
    samples = [sample for family in families for sample in family.samples]
    values = {s.name.removeprefix(PREFIX): float(s.value) for s in samples}
    return {name: value for name, value in values.items() if name in GAUGES}
