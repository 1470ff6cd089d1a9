"""Training by several processes: `python -m train` under torchrun."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from curate.errors import RunFailed

LAST_LINES = 5  # of what the processes said, where they failed


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
    """As `train.loop.pretrain.pretrain`, by as many processes of `python -m train`; raises
    RunFailed with the error they ended with, and its exit code."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "-m", "train", str(shards or "-"), str(out)]
    command += ["--json", "--model", model]
    changed = settings | {f"model.{name}": value for name, value in changes.items()}
    for name, value in changed.items():
        command += ["--set", f"{name}={json.dumps(value)}"]
    summary: dict[str, Any] | None = None
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as run:
            assert run.stdout is not None
            try:
                for line in run.stdout:
                    event = _object(line)
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
    lines = [line for line in output.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("error: ")]
    shown = ours[:1] or lines[-LAST_LINES:] or [f"torchrun ended with status {code}"]
    failure = RunFailed(" / ".join(shown).removeprefix("error: "))
    if ours and "exitcode  : 2" in output:
        failure.exit_code = 2
    return failure
