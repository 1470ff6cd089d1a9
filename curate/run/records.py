"""run.json and corrupt.jsonl: the record of a run, written and read."""

from __future__ import annotations

import json
import platform
import re
import shlex
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from curate.formats.inputs import empty_files
from curate.run.plan import stage_folder
from llmcurate.base.disk.files import part_files, replacing, write_text
from llmcurate.base.disk.process import host, peak_bytes
from llmcurate.base.disk.units import counted, format_bytes
from llmcurate.base.errors import RunFailed
from llmcurate.version import __version__

if TYPE_CHECKING:
    from curate.run.outcome import Outcome
    from curate.steps.contracts import Settings

LIBRARIES = (
    "pyarrow", "numpy", "numba", "duckdb", "resiliparse", "tokenizers", "torch"
)  # fmt: skip


@cache
def _versions() -> dict[str, str]:
    versions = {"llmcurate": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def record(outcome: Outcome) -> dict[str, Any]:
    """The content of run.json."""
    plan = outcome.plan
    return {
        "recipe": plan.recipe.name,
        "description": plan.recipe.description,
        "plan": plan.digest,
        "started": f"{outcome.started:%Y-%m-%dT%H:%M:%SZ}",
        "command": command_line(),
        "host": host(),
        "versions": _versions(),
        "inputs": [
            {"path": f.path, "format": f.format, "bytes": f.size} for f in plan.inputs.files
        ],
        "steps": [_step(s) for s in plan.recipe.steps],
        "partitions": len(plan.inputs.partitions),
        "notices": [
            *plan.inputs.notices,
            *(n for s in plan.recipe.steps for n in s.notes()),
            *(n for s in outcome.stages for n in (s.get("decided") or {}).get("notices", ())),
            *reading_notices(outcome),
            *outcome.notices,
        ],
        "totals": outcome.totals(),
        "stages": outcome.stages,
        "driver": driver_costs(outcome),
        "products": outcome.products,
    }


def reading_notices(outcome: Outcome) -> list[str]:
    """What of the input is not in the documents as it was stated, a line each."""
    figures, read = outcome.of_input, outcome.plan.recipe.read
    notices = []
    if not outcome.plan.stages and (places := figures.get("corrupt")):  # else the funnel's head
        notices.append(f"{counted(places, 'place')} of the input not read: see corrupt.jsonl")
    notices += empty_files(figures)
    if left_out := figures.get("left_out"):
        columns = ", ".join(f"{name} {count:,}" for name, count in list(left_out.items())[:5])
        notices.append(
            f"{counted(sum(left_out.values()), 'value')} of carried columns left out ({columns}):"
            f" a document's have at most {format_bytes(read.max_carried_bytes)}"
            " (read.max_carried_bytes), a parquet page what memory takes"
        )
    if differing := figures.get("digests_differing"):
        files = sorted(differing.items(), key=lambda item: (-item[1], item[0]))
        named = ", ".join(f"{name} {count:,}" for name, count in files[:5])
        fate = "they were rejected" if read.digests == "drop" else "they stay (read.digests: drop)"
        notices.append(
            f"{counted(sum(differing.values()), 'document')} of"
            f" {figures['digests_compared']:,} that were compared differ from the digest of their"
            f" record, in {counted(len(files), 'file')} ({named}); {fate}"
        )
    return notices


MOST_COMMAND = 2_000  # characters: a shell may have put thousands of file names in


def command_line() -> str:
    """The command that this process was started with, as a shell takes it, without passwords in
    URLs; empty where a program of another name makes the run."""
    program = Path(sys.argv[0])
    if program.stem != "llmcurate" and program.parts[-3:] != ("curate", "cli", "app.py"):
        return ""
    command = shlex.join(["llmcurate", *sys.argv[1:]])
    command = re.sub(r"(://)[^/@\s']*@", r"\1...@", command)
    return command if len(command) <= MOST_COMMAND else f"{command[:MOST_COMMAND]}\u2026"


def driver_costs(outcome: Outcome) -> dict[str, Any]:
    """CPU seconds beside the stages, by work, and the most memory of the process that drives."""
    spent = {"planning": outcome.plan.cpu, **outcome.driver}
    cpu = {k: round(v, 3) for k, v in spent.items()}
    return {"cpu": cpu, "peak_bytes": peak_bytes()}


def write_corrupt(outcome: Outcome) -> None:
    """OUT/corrupt.jsonl: file, offset and what is wrong, of what could not be read: the first
    hundred places of a partition; an entry that counts more stands for what follows in its file."""
    target = outcome.out / "corrupt.jsonl"
    if not outcome.plan.stages:
        return  # the product that read the input wrote it
    if not outcome.stages[0]["corrupt"]:
        target.unlink(missing_ok=True)
        return
    folder = stage_folder(outcome.out, outcome.plan.stages[0].folder_name)
    with replacing(target) as aside, open(aside, "w", encoding="utf-8") as f:
        for path in part_files(folder, ".corrupt"):
            for batch in pq.ParquetFile(path).iter_batches():
                for row in batch.to_pylist():
                    f.write(json.dumps(row, ensure_ascii=False) + "\n")


def _step(step: Settings) -> dict[str, Any]:
    """Name, settings and the first sentence of what the step says of itself."""
    about = (type(step).__doc__ or "").strip().split("\n\n")[0]
    return {
        "label": step.label,
        "name": step.name,
        "about": " ".join(about.split()),
        "settings": step.model_dump(mode="json"),
    }


def write_record(path: Path, data: dict[str, Any]) -> None:
    """Writes a record as JSON."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    # Names of files may hold bytes that are no UTF-8.
    write_text(path, text.encode("utf-8", "replace").decode("utf-8") + "\n")


def read_record(out: Path) -> dict[str, Any]:
    """OUT's run.json; RunFailed where it is damaged."""
    path = out / "run.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        data = None
    if not isinstance(data, dict) or not {"stages", "products", "totals"} <= data.keys():
        raise RunFailed(
            f"{path} is damaged: give the command of that run again, which writes it anew"
        )
    return data
