"""Web archives to C4-filtered text: `llmcurate run` with one worker against DataTrove.

    python benchmarks/bench_warc_to_text.py [--runs 3]

Whole commands on real pages, start-up included. Ours: a recipe of extract and c4, the files
repeated eight times for a run of some ten seconds. DataTrove, one process: WarcReader, Trafilatura
with DataTrove's defaults, C4QualityFilter with C4's limits, JsonlWriter; the files once, because
repeated pages would be emptied by Trafilatura's own deduplication. Both figures count pages in the
input. Exit status 1 when the ratio is under 10.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, Watched, need, peer_python, watched

REPEAT = 8
TARGET = 10.0


def ours(folder: Path, run: int) -> tuple[Watched, dict]:
    recipe = folder / "recipe.yaml"
    recipe.write_text("name: warc-to-text\nsteps: [extract, c4]\n")
    out = folder / f"ours-{run}"
    command = [sys.executable, "-m", "curate.cli", "run", str(recipe), str(folder / "in")]
    done = watched([*command, "-o", str(out), "--workers", "1", "--quiet"])
    if done.status:
        sys.exit(done.output)
    totals: dict = json.loads((out / "run.json").read_text())["totals"]
    shutil.rmtree(out)
    return done, totals


def theirs(python: str, source: Path, out: Path) -> tuple[Watched, dict]:
    peer = ROOT / "benchmarks" / "peers" / "datatrove_c4.py"
    done = watched([python, str(peer), "warc", str(source), str(out)])
    if done.status:
        sys.exit(done.output)
    shutil.rmtree(out)
    return done, json.loads(done.output.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    files = need("web/*.warc.gz")
    python = peer_python()
    mine, other = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        for copy in range(REPEAT):
            for path in files:
                shutil.copy(path, folder / "in" / f"{copy}-{path.name}")
        for run in range(runs):
            mine.append(ours(folder, run))
            other.append(theirs(python, files[0].parent, folder / "theirs"))
    pages = mine[0][1]["read"]
    rates = []
    for label, found, count, kept in (
        ("llmcurate", mine, pages, mine[0][1]["kept"]),
        ("DataTrove 0.10.1", other, pages // REPEAT, other[0][1]["kept"]),
    ):
        seconds = statistics.median(w.seconds for w, _ in found)
        peak = max(w.peak_mib for w, _ in found)
        total = max(w.total_mib for w, _ in found)
        rates.append(count / seconds)
        print(
            f"  {label:<18}{rates[-1]:8.1f} pages/s  ({count} pages in {seconds:.1f} s,"
            f" {kept} kept), peak {peak:.0f} MiB a process, {total:.0f} MiB in all"
        )
    print(f"  ratio {rates[0] / rates[1]:.1f}; target {TARGET:.0f}")
    sys.exit(0 if rates[0] >= TARGET * rates[1] else 1)


if __name__ == "__main__":
    main()
