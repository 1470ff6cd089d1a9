"""Tasks for Slurm jobs that report which worker ran them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def work(task: dict[str, Any]) -> dict[str, Any]:
    """Notes the job that works on the part; takes `seconds`, `first` ones the first time."""
    notes = Path(task["notes"])
    first = not list(notes.glob(f"{task['part']}-*"))
    (notes / f"{task['part']}-{os.getppid()}").touch()
    time.sleep(task["first"] if first and "first" in task else task.get("seconds", 0))
    return {"part": task["part"], "job": os.getppid()}
