"""Monitoring of refreshes: logs as JSON lines, calls on failure, metrics for Prometheus."""

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
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from llmcurate.base.disk.files import write_text
from llmcurate.base.terminal.progress import say

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
