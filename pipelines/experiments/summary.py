"""Print the differences of an experiment's comparisons in one line: python summary.py OUT."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def shown(row: dict[str, Any]) -> str:
    """Return a row's name, its difference from the first row, and the 95 % interval."""
    gap = row["difference"]
    text = f"{row['name']} {gap['mean']:+.4f}"
    if gap["interval"]:
        low, high = gap["interval"]
        text += f" ({low:+.4f} to {high:+.4f})"
    return text


def line(path: Path) -> str:
    """Return the line of a comparison: differences, placebo, seeds, the smallest detectable."""
    figures = json.loads(path.read_text("utf-8"))
    rows = [shown(row) for row in figures["corpora"][1:]]
    found = figures["power"]["detectable"]
    parts = [*rows, shown(figures["placebo"]), f"seeds: {len(figures['seeds'])}"]
    return "; ".join([*parts, f"could detect {found:.4f}"] if found else parts)


paths = sorted(Path(sys.argv[1]).glob("*/comparison.json"))
if not paths:
    sys.exit(f"no comparison in {sys.argv[1]}")
print(
    " | ".join(f"{path.parent.name}: {line(path)}" for path in paths).removeprefix("comparison: ")
)
