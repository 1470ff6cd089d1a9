"""Training by several processes: `train.__main__` under torchrun."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmcurate.base.errors import RunFailed
from llmcurate.base.start import command

LAST_LINES = 5  # of the processes, if none of them is known to be the error
TORCHRUN = "torch.distributed.elastic."  # its exception, which names no cause
# Before each line of a process, and lines of torchrun's log.
_PREFIX = re.compile(r"^\[rank\d+\]: |^[A-Z]\d{4} .*\n", re.MULTILINE)
_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?: .*\n)+(\S.*)", re.MULTILINE)
_KILLED = re.compile(r"^  traceback : (Signal .*)", re.MULTILINE)


def pretrain_in(
    processes: int,
    shards: Path | None,
    out: Path,
    *,
    model: str,
    changes: dict[str, Any],
    settings: dict[str, Any],
    on_progress: Callable[[dict[str, Any]], None],
    on_notice: Callable[[str], None],
) -> dict[str, Any]:
    """As `train.loop.pretrain.pretrain`, by as many processes of `train`; raises
    RunFailed with the error they ended with, and its exit code."""
    arguments = [str(shards or "-"), str(out), "--json", "--model", model]
    changed = settings | {f"model.{name}": value for name, value in changes.items()}
    for name, value in changed.items():
        arguments += ["--set", f"{name}={json.dumps(value)}"]
    _, *script = command("train.__main__", *arguments)  # that torchrun starts by Python
    by = ["--standalone", f"--nproc-per-node={processes}"]
    line = command("torch.distributed.run", *by, *script)
    summary: dict[str, Any] | None = None
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, text=True) as run:
            assert run.stdout is not None
            try:
                for event in map(_object, run.stdout):
                    if "summary" in event:
                        summary = event["summary"]
                    elif "notice" in event:
                        on_notice(event["notice"])
                    elif "step" in event:
                        on_progress(event)
            except BaseException:
                run.terminate()  # torchrun ends its processes
                raise
        if run.returncode == 0 and summary is not None:
            return summary
        errors.seek(0)
        raise _failure(errors.read(), run.returncode)


def _object(line: str) -> dict[str, Any]:
    """A line of `--json`; what a library prints beside it is nothing."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _failure(output: str, code: int) -> RunFailed:
    output = _PREFIX.sub("", output)
    lines = [line for line in output.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("error: ")]
    raised = [line for line in _RAISED.findall(output) if not line.startswith(TORCHRUN)]
    cause = ours[:1] or raised[:1] or _KILLED.findall(output)[-1:]  # the last: "Root Cause"
    shown = cause or lines[-LAST_LINES:] or [f"torchrun ended with status {code}"]
    failure = RunFailed(" / ".join(shown).removeprefix("error: "))
    if ours and "exitcode  : 2" in output:
        failure.exit_code = 2
    return failure
