"""What a run leaves for readers: run.json, recipe.yaml, corrupt.jsonl and report.html."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import yaml

from curate.atomic import replacing, write_text
from curate.plan import stage_folder
from curate.version import __version__

if TYPE_CHECKING:
    from curate.outcome import Outcome

LIBRARIES = ("pyarrow", "numpy", "numba", "duckdb", "resiliparse", "tokenizers", "torch")


def _versions() -> dict[str, str]:
    found = {"llmcurate": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def record(outcome: Outcome) -> dict[str, Any]:
    """The content of run.json."""
    plan = outcome.plan
    return {
        "recipe": plan.recipe.name,
        "description": plan.recipe.description,
        "plan": plan.digest,
        "versions": _versions(),
        "inputs": [
            {"path": f.path, "format": f.format, "bytes": f.size} for f in plan.inputs.files
        ],
        "partitions": len(plan.inputs.partitions),
        "notices": [*plan.inputs.notices, *(n for s in plan.recipe.steps for n in s.notes())],
        "totals": outcome.totals(),
        "stages": outcome.stages,
        "products": outcome.products,
    }


def _write_corrupt(outcome: Outcome) -> None:
    """OUT/corrupt.jsonl: file, offset and what is wrong, of everything that could not be read."""
    target = outcome.out / "corrupt.jsonl"
    if not outcome.plan.stages:
        return  # the product that read the input wrote it
    if not outcome.stages[0]["corrupt"]:
        target.unlink(missing_ok=True)
        return
    folder = stage_folder(outcome.out, outcome.plan.stages[0].folder_name)
    with replacing(target) as aside, open(aside, "w", encoding="utf-8") as f:
        for path in sorted(folder.glob("part-*.corrupt.parquet")):
            for batch in pq.ParquetFile(path).iter_batches():
                for row in batch.to_pylist():
                    f.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_records(outcome: Outcome) -> None:
    """Writes the records of a finished run into its OUT folder."""
    from curate.report.page import render

    data = record(outcome)
    resolved = outcome.plan.recipe.resolved()
    text = yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True)
    write_text(outcome.out / "recipe.yaml", text)
    _write_corrupt(outcome)
    write_text(outcome.out / "report.html", render(data, outcome.out))
    write_text(outcome.out / "run.json", json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read_record(out: Path) -> dict[str, Any]:
    """OUT's run.json."""
    data: dict[str, Any] = json.loads((out / "run.json").read_text(encoding="utf-8"))
    return data
