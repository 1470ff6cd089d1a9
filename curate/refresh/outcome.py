"""The options and the outcome of a refresh, for a line of mail, `--json`, metrics and logs."""

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
from typing import Any

from curate.refresh.forgetting import Scrubbed
from llmcurate.base.disk.files import write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.terminal import say

MOST_NAMED = 10  # damaged inputs in a line


@dataclass
class How:
    """The options of a refresh. `changed` and `damaged` decide what is taken in."""

    workers: int = 0
    quiet: bool = False
    changed: str = "refuse"  # what happens to inputs that are others now: refuse, new, skip
    damaged: str = "leave"  # what happens to inputs whose end cannot be read: leave, take
    keep: int | None = None  # snapshots
    keep_days: float | None = None
    rebuild: bool = False
    abandon: bool = False
    products: bool = False  # those of the recipe, of the whole snapshot
    engine: str = "local"
    address: str | None = None  # of a Ray cluster; of this machine, for jobs of Slurm
    allow_python: bool = False  # whether functions in files that the recipe names may run
    slurm: tuple[str, ...] = ()  # options of sbatch
    now: datetime | None = None  # for the name; the clock's by default


@dataclass
class Refreshed:
    """What happened. kind: run, rebuild, forget, rollback, or nothing; totals: of the run, as in
    its run.json; corpus: documents and bytes of text in the snapshot."""

    home: Path
    kind: str = "nothing"
    name: str | None = None
    inputs: int = 0
    unchanged: int = 0
    totals: dict[str, Any] = field(default_factory=dict)
    corpus: dict[str, Any] = field(default_factory=dict)
    forgotten: int = 0
    superseded: int = 0
    removed_snapshots: list[str] = field(default_factory=list)
    snapshots: int = 0
    seconds: float = 0.0
    products: Path | None = None  # their folder, where they were asked for
    scrubbed: Scrubbed = field(default_factory=Scrubbed)  # what runs kept of forgotten documents
    built: bool = False  # whether a product was not there yet
    damaged: dict[str, str] = field(default_factory=dict)  # inputs that were left out, and why

    @property
    def new(self) -> bool:
        """Return whether there is a new snapshot, or product."""
        return self.kind != "nothing" or self.built

    @property
    def damage(self) -> str:
        """A line on the inputs that were left out, empty without any."""
        named = [f"{path} ({what})" for path, what in self.damaged.items()]
        first = ", ".join(named[:MOST_NAMED])
        count = counted(len(named), "damaged input")
        return f"{count}, left out until whole: {first}" if named else ""

    def line(self) -> str:
        """One line for people."""
        return "; ".join(filter(None, (self._line(), self.damage)))

    def _line(self) -> str:
        where = self.name or "no snapshot yet"
        documents = counted(self.corpus.get("documents", 0), "document")
        if self.kind == "nothing":
            stays = f"{self.name} stays" if self.name else where
            stays += f"; products in {self.products}" if self.built else ""
            return f"{self.home}: nothing new among {counted(self.unchanged, 'input')}; {stays}"
        if self.kind == "rollback":
            return f"{self.home}: back to {where}, {documents}"
        older = counted(self.superseded, "older version")
        gone = f", {older} replaced" if self.superseded else ""
        gone += f", {self.forgotten:,} forgotten" if self.forgotten else ""
        if self.kind == "forget":
            forgotten = counted(self.forgotten, "document")
            return f"{where}: {forgotten} forgotten; corpus {documents}"
        t = self.totals
        why = f" ({t['nothing_kept']})" if t.get("nothing_kept") else ""
        return (
            f"{where}: {counted(self.inputs, 'new input')}, {counted(t['read'], 'document')} read,"
            f" {t['kept']:,} kept{why}{gone}; corpus {documents}; {self.seconds:.1f} s"
        )

    def json(self) -> dict[str, Any]:
        """For `--json`, hooks and logs."""
        return {
            "kind": self.kind,
            "snapshot": self.name,
            "inputs": self.inputs,
            "known_inputs": self.unchanged,
            "read": self.totals.get("read", 0),
            "kept": self.totals.get("kept", 0),
            "rejected": self.totals.get("rejected", 0),
            "corrupt": self.totals.get("corrupt", 0),
            "by_rule": self.totals.get("by_rule", {}),
            "nothing_kept": self.totals.get("nothing_kept"),
            "forgotten": self.forgotten,
            "superseded": self.superseded,
            "emptied": self.scrubbed.documents,
            "emptied_runs": self.scrubbed.runs,
            "unsearchable": list(self.scrubbed.indexes),
            "corpus_documents": self.corpus.get("documents", 0),
            "corpus_text_bytes": self.corpus.get("text_bytes", 0),
            "kept_ids": self.corpus.get("ids", ""),
            "snapshots": self.snapshots,
            "removed_snapshots": self.removed_snapshots,
            "seconds": round(self.seconds, 3),
            "home": str(self.home),
            "products": str(self.products) if self.products else None,
            "damaged": self.damaged,
        }


WEBHOOK_SECONDS = 20
FIELDS = "fields"  # the attribute of a log record with more keys of its JSON object


class JsonFormatter(logging.Formatter):
    """A log record as a JSON object with time, level and message."""

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
    """Stands for stderr: every line written becomes a log record."""

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
        """Logs a last line that had no end."""
        self.write("\n")


@contextmanager
def json_logs(wanted: bool) -> Iterator[logging.Logger | None]:
    """Everything written to stderr as JSON lines, if wanted; None where not."""
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


@dataclass(frozen=True)
class FailureHooks:
    """What is called when a refresh fails. command: for sh; webhook: a URL that takes JSON."""

    command: str | None = None
    webhook: str | None = None

    def call(self, home: Path, error: str, code: int) -> None:
        """Calls both. Where one fails itself a line says so, and the exit code stays as it is."""
        if self.command:
            variables = {"HOME": str(home), "ERROR": error, "EXIT_CODE": str(code)}
            env = {
                **os.environ,
                **{f"LLMCURATE_{k}": v.replace("\0", " ") for k, v in variables.items()},
            }
            done = subprocess.run(["sh", "-c", self.command], env=env, stdin=subprocess.DEVNULL)
            if done.returncode:
                say(f"--on-failure: the command ended with exit code {done.returncode}")
        if self.webhook:
            problem = _post(self.webhook, {"home": str(home), "error": error, "exit_code": code})
            if problem:
                say(f"--webhook {self.webhook}: {problem}")


def _post(url: str, data: dict[str, Any]) -> str | None:
    """What went wrong, None where nothing did."""
    import http.client
    import urllib.error
    import urllib.request

    try:
        request = urllib.request.Request(
            url, json.dumps(data).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=WEBHOOK_SECONDS):
            return None
    except (OSError, ValueError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", None) or error)


PREFIX = "llmcurate_refresh_"
GAUGES = {
    "exit_code": "Exit code of the last call: 0 new data, 3 nothing new, 65 damaged input.",
    "damaged_inputs": "Inputs that are left out since their end cannot be read.",
    "last_call_timestamp_seconds": "When the last call ended.",
    "last_success_timestamp_seconds": "When a call last ended with exit code 0, 3 or 65.",
    "last_snapshot_timestamp_seconds": "When a call last made a snapshot.",
    "duration_seconds": "Seconds that the last call took.",
    "inputs": "New inputs of the last snapshot.",
    "documents_read": "Documents read for the last snapshot.",
    "documents_kept": "Documents that it kept of them.",
    "documents_rejected": "Documents that it rejected of them.",
    "corpus_documents": "Documents in the current snapshot.",
    "corpus_text_bytes": "Bytes of text in the current snapshot.",
    "snapshots": "Snapshots that stand.",
}


def write_metrics(path: Path, home: Path, code: int, seconds: float, done: dict[str, Any]) -> None:
    """Gauges for Prometheus' textfile collector, replaced as a whole. What this call does not know
    stays as the file had it: a failure does not hide when it last went well.

    done: of `Refreshed.json`, empty after a failure.
    """
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    now = round(time.time(), 3)
    values = _read_metrics(path)
    values |= {
        "exit_code": code,
        "last_call_timestamp_seconds": now,
        "duration_seconds": round(seconds, 3),
    }
    if done:
        values["last_success_timestamp_seconds"] = now
        keys = {n: n for n in ("corpus_documents", "corpus_text_bytes", "snapshots")}
        if done.get("kind") in ("run", "rebuild"):
            keys |= {f"documents_{n}": n for n in ("read", "kept", "rejected")}
            keys["inputs"] = "inputs"
        values |= {name: done[key] for name, key in keys.items()}
        values["damaged_inputs"] = len(done["damaged"])
    if done.get("kind", "nothing") != "nothing":
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
    """The gauges of an earlier call; none where the file is missing or damaged."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
    samples = [sample for family in families for sample in family.samples]
    values = {s.name.removeprefix(PREFIX): float(s.value) for s in samples}
    return {name: value for name, value in values.items() if name in GAUGES}
