"""Forecast against truth: from a run over a tenth of the input, what the run over all of it takes.

    python benchmarks/bench_scale.py [--archives N] [--recipe NAME]

Variants of real pages (page_variants.py) in archives; the recipe runs over a tenth of them, then
`llmcurate run --dry-run --json --sample` forecasts the whole, then the whole runs. One worker each.
Per stage, and for what is done once together: CPU seconds, bytes written, documents kept. Exit
status 1 where CPU seconds are off by more than 25 % and by more than two seconds, or bytes or
documents by more than 10 %. Two seconds, because the sample has less than that of some stages, and
because a report takes a second more where all of its charts have something to show.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.page_variants import write_variants  # noqa: E402
from benchmarks.shared_texts import SHARED, need, reached  # noqa: E402

CPU, BYTES, SLACK = 0.25, 0.10, 2.0
ONCE = "what is done once"


def llmcurate(*arguments: object) -> str:
    """The output of the command; ends the script where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.setdefault("LLMCURATE_LID_MODEL", str(SHARED / "corpora/models/lid.176.ftz"))
    command = [sys.executable, "-m", "curate.cli.app", *map(str, arguments), "--workers", "1", "-q"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def forecast(plan: dict[str, Any]) -> dict[str, dict[str, float]]:
    """CPU seconds, bytes and documents by stage."""
    rows: dict[str, dict[str, float]] = {ONCE: {"cpu": 0.0}}
    for stage in plan["stages"]:
        if stage["peak_bytes"]:
            rows[stage["name"][:2]] = {
                "cpu": stage["cpu"],
                "written": stage["bytes_out"],
                "kept": stage["documents_out"],
            }
        else:
            rows[ONCE]["cpu"] += stage["cpu"] or 0.0
    return rows


def truth(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The same of a run's record."""
    once = sum(record["driver"]["cpu"].values())
    rows = {}
    for stage in record["stages"]:
        once += (stage.get("settle_cpu") or 0.0) + (stage.get("decided_cpu") or 0.0)
        once += (stage.get("decided") or {}).get("tasks_cpu") or 0.0
        written = sum(n for kind, n in stage["written"].items() if kind != "decisions")
        rows[stage["folder"][:2]] = {
            "cpu": sum(stage["cpu"].values()), "written": written, "kept": stage["kept"]
        }  # fmt: skip
    return {**rows, ONCE: {"cpu": once}}


def compare(predicted: dict[str, dict[str, float]], measured: dict[str, dict[str, float]]) -> bool:
    """Prints both; whether all that is judged is within its limit."""
    everything = sum(row["cpu"] for row in measured.values())
    predicted = {**predicted, "all": {"cpu": sum(row["cpu"] for row in predicted.values())}}
    measured = {**measured, "all": {"cpu": everything}}
    good = True
    for stage, row in measured.items():
        for what, value in row.items():
            limit = CPU if what == "cpu" else BYTES
            off = predicted[stage][what] / value - 1 if value else 0.0
            within = what == "cpu" and abs(predicted[stage][what] - value) <= SLACK
            bad = abs(off) > limit and not within
            good &= not bad
            mark = f"  over {limit:.0%}" if bad else "  under 2 s" if abs(off) > limit else ""
            both = f"{predicted[stage][what]:>16,.1f}{value:>16,.1f}"
            print(f"  {stage:<18}{what:<9}{both}{off:>+8.1%}{mark}")
    return good


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archives", type=int, default=60)
    parser.add_argument("--recipe", default="fineweb")
    options = parser.parse_args()
    need("models/lid.176.ftz"), need("web/*.warc.gz")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, tenth = folder / "whole", folder / "tenth"
        whole.mkdir()
        tenth.mkdir()
        what = write_variants(whole, range(options.archives))
        for file in sorted(whole.iterdir())[::10]:
            (tenth / file.name).hardlink_to(file)
        llmcurate("run", options.recipe, tenth, "-o", folder / "warm")  # compiles, loads
        llmcurate("run", options.recipe, tenth, "-o", folder / "sample")
        dry = ("--dry-run", "--json", "--sample", folder / "sample")
        plan = json.loads(
            llmcurate("run", options.recipe, whole, "-o", folder / "out", *dry).splitlines()[-1]
        )["forecast"]
        llmcurate("run", options.recipe, whole, "-o", folder / "out")
        record = json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))
    print(f"{options.recipe}: {record['totals']['read']:,} {what}, forecast from a tenth of them")
    print(f"  {'stage':<18}{'':<9}{'forecast':>16}{'measured':>16}{'off':>8}")
    good = compare(forecast(plan), truth(record))
    for line in (*plan["missing"], *plan["notes"]):
        print(f"  {line}")
    sys.exit(not reached(good))


if __name__ == "__main__":
    main()
