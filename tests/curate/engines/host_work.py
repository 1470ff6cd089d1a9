"""Tasks for workers of a cluster: quick ones, some that wait, and one that takes its machine with
it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from llmcurate.base.messages import Task


def quick(task: dict[str, Any]) -> dict[str, int]:
    """A tenth of a second; says which host it was on."""
    time.sleep(0.1)
    return {"host": os.getppid()}


def wait(task: dict[str, Any]) -> dict[str, int]:
    """Until there is a file, or for a minute."""
    for _ in range(600):
        if Path(task["until"]).exists():
            break
        time.sleep(0.1)
    return {}


@dataclass(frozen=True)
class Fatal(Task):
    kills: bool


def fatal(task: Fatal) -> dict[str, int]:
    """Kills its machine's agent, where the task says so."""
    if task.kills:
        host = psutil.Process(os.getppid())
        agent = next(p for p in host.parents() if p.name() == "raylet")
        agent.send_signal(signal.SIGKILL)
        time.sleep(60)
    return quick({})
