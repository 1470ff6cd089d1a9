"""Who is told of a refresh: logs as JSON lines, a command or webhook on failure, metrics."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from curate.terminal.progress import say

WEBHOOK_SECONDS = 20


class JsonLines(io.TextIOBase):
    """Stands for stderr: every line written becomes a JSON object with time, level and message."""

    def __init__(self, target: TextIO) -> None:
        self._target, self._left = target, ""

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        *lines, self._left = (self._left + text).split("\n")
        for line in lines:
            if line.strip():
                self.event("info", line)
        return len(text)

    def flush(self) -> None:
        self._target.flush()

    def event(self, level: str, message: str, **more: Any) -> None:
        """One line."""
        when = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        record = {"time": when, "level": level, "message": message, **more}
        self._target.write(json.dumps(record, ensure_ascii=True) + "\n")
        self._target.flush()

    def end(self) -> None:
        """A last line that had no end."""
        if self._left.strip():
            self.event("info", self._left)
        self._left = ""


@contextmanager
def json_logs(wanted: bool) -> Iterator[JsonLines | None]:
    """All that is said on stderr as JSON lines, if wanted."""
    if not wanted:
        yield None
        return
    before = sys.stderr
    lines = JsonLines(before)
    sys.stderr = lines
    try:
        yield lines
    finally:
        lines.end()
        sys.stderr = before


@dataclass(frozen=True)
class Hooks:
    """What is called when a refresh fails. command: for sh; webhook: a URL that takes JSON."""

    command: str | None = None
    webhook: str | None = None

    def failed(self, home: Path, error: str, code: int) -> None:
        """Calls both. Where one fails itself a line says so, and the exit code stays as it is."""
        if self.command:
            said = {"HOME": str(home), "ERROR": error, "EXIT_CODE": str(code)}
            env = {
                **os.environ,
                **{f"LLMCURATE_{k}": v.replace("\0", " ") for k, v in said.items()},
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


_METRICS = (
    ("exit_code", "Exit code of the last call: 0 new data, 3 nothing new.", "code"),
    ("last_call_timestamp_seconds", "When the last call ended.", "time"),
    ("last_success_timestamp_seconds", "When a call last ended with exit code 0 or 3.", "success"),
    ("last_snapshot_timestamp_seconds", "When a call last made a snapshot.", "snapshot"),
    ("duration_seconds", "Seconds that the last call took.", "seconds"),
    ("inputs", "New inputs of the last snapshot.", "inputs"),
    ("documents_read", "Documents read for the last snapshot.", "read"),
    ("documents_kept", "Documents that it kept of them.", "kept"),
    ("documents_rejected", "Documents that it rejected of them.", "rejected"),
    ("corpus_documents", "Documents in the current snapshot.", "corpus_documents"),
    ("corpus_text_bytes", "Bytes of text in the current snapshot.", "corpus_text_bytes"),
    ("snapshots", "Snapshots that stand.", "snapshots"),
)


def write_metrics(path: Path, home: Path, code: int, seconds: float, done: dict[str, Any]) -> None:
    """Gauges for Prometheus' textfile collector, replaced as a whole. What this call does not know
    stays as the file had it: a failure does not hide when it last went well.

    done: of `Refreshed.json`, empty after a failure.
    """
    now = round(time.time(), 3)
    values: dict[str, float] = _read_metrics(path)
    values |= {"code": code, "time": now, "seconds": round(seconds, 3)}
    if code in (0, 3):
        values["success"] = now
        names = {"corpus_documents", "corpus_text_bytes", "snapshots"}
        if done.get("kind") in ("run", "rebuild"):
            names |= {"inputs", "read", "kept", "rejected"}
        values |= {name: done[name] for name in names if name in done}
    if code == 0:
        values["snapshot"] = now
    label = str(home).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    lines = []
    for name, about, key in _METRICS:
        if key in values:
            lines += [
                f"# HELP llmcurate_refresh_{name} {about}",
                f"# TYPE llmcurate_refresh_{name} gauge",
                f'llmcurate_refresh_{name}{{home="{label}"}} {values[key]:.15g}',
            ]
    # The collector reads every *.prom, so the new file has no such name until it is whole.
    aside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(aside, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")
            f.flush()
            os.fsync(f.fileno())
        aside.replace(path)
    except OSError as error:
        say(f"--metrics {path}: {error.strerror}")
        aside.unlink(missing_ok=True)


def _read_metrics(path: Path) -> dict[str, float]:
    keys = {f"llmcurate_refresh_{name}": key for name, _, key in _METRICS}
    found: dict[str, float] = {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    for line in text.splitlines():
        name = line.partition("{")[0]
        try:
            if name in keys:
                found[keys[name]] = float(line.rpartition(" ")[2])
        except ValueError:
            continue
    return found
