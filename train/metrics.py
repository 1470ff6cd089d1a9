"""metrics.jsonl: a line a step. What is reproducible stands beside "timing", which is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from train.files import write_atomic


def read_lines(metrics: Path) -> list[dict[str, Any]]:
    """The lines of a log; what follows a line cut off by a crash is not read."""
    lines: list[dict[str, Any]] = []
    if metrics.is_file():
        for line in metrics.read_bytes().splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                break
            if not isinstance(value, dict) or not isinstance(value.get("step"), int):
                break
            lines.append(value)
    return lines


def truncate(metrics: Path, step: int) -> None:
    """Keep the lines of the first ``step`` steps: those after the checkpoint are made again."""
    kept = [json.dumps(line) + "\n" for line in read_lines(metrics) if line["step"] <= step]
    write_atomic(metrics, "".join(kept).encode("utf-8"))
