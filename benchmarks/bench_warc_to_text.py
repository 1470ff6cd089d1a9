"""Web archives to filtered text: `llmcurate run` with one worker against DataTrove.

    python benchmarks/bench_warc_to_text.py [--runs 3]

Whole commands on real pages, start-up included, once with C4's rules alone and once with the text
filters of FineWeb (Gopher repetition, Gopher quality, C4, FineWeb; no language identification).
Ours: the files repeated sixteen times, for a run about as long as DataTrove's. DataTrove, one
process: WarcReader, Trafilatura with its defaults, the filters, JsonlWriter; the files once, since
repeated pages would be emptied by Trafilatura's own deduplication. Both figures count pages in the
input. Exit status 1 when the ratio is under 10 with C4 alone or under 15 with all filters.
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
from benchmarks.shared_texts import ROOT, Watched, need, peer_python, reached, sized, watched

REPEAT = sized(16, 1)
TARGETS = {"c4": 10.0, "all": 15.0}
STEPS = {
    "c4": "[extract: {extractor: resiliparse}, c4]",
    "all": "[extract: {extractor: resiliparse}, gopher_repetition, gopher_quality,"
    " c4: {require_end_mark: false, min_words_per_line: 3, min_sentences: 5}, fineweb_quality]",
}


def ours(folder: Path, run: int, which: str) -> tuple[Watched, dict]:
    recipe = folder / "recipe.yaml"
    recipe.write_text(f"name: warc-to-text\nsteps: {STEPS[which]}\n")
    out = folder / f"ours-{run}"
    command = [sys.executable, "-m", "curate.cli.app", "run", str(recipe), str(folder / "in")]
    done = watched([*command, "-o", str(out), "--workers", "1", "--quiet"])
    if done.status:
        sys.exit(done.output)
    totals: dict = json.loads((out / "run.json").read_text())["totals"]
    shutil.rmtree(out)
    return done, totals


def theirs(python: str, source: Path, out: Path, which: str) -> tuple[Watched, dict]:
    peer = ROOT / "benchmarks" / "peers" / "datatrove_c4.py"
    done = watched([python, str(peer), "warc", str(source), str(out), which])
    if done.status:
        sys.exit(done.output)
    shutil.rmtree(out)
    return done, json.loads(done.output.splitlines()[-1])


def compare(folder: Path, python: str, source: Path, runs: int, which: str) -> float:
    """Prints both rates; returns their ratio."""
    own, other = [], []
    for run in range(runs):
        own.append(ours(folder, run, which))
        other.append(theirs(python, source, folder / "theirs", which))
    pages = own[0][1]["read"]
    rates = []
    print(f"filters: {which}")
    for label, passes, count, kept in (
        ("llmcurate", own, pages, own[0][1]["kept"]),
        ("DataTrove 0.10.1", other, pages // REPEAT, other[0][1]["kept"]),
    ):
        seconds = statistics.median(w.seconds for w, _ in passes)
        peak = max(w.peak_mib for w, _ in passes)
        total = max(w.total_mib for w, _ in passes)
        rates.append(count / seconds)
        print(
            f"  {label:<18}{rates[-1]:8.1f} pages/s  ({count} pages in {seconds:.1f} s,"
            f" {kept} kept), peak {peak:.0f} MiB a process, {total:.0f} MiB in all"
        )
    print(f"  ratio {rates[0] / rates[1]:.1f}; target {TARGETS[which]:.0f}")
    return rates[0] / rates[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    files = need("web/*.warc.gz")
    python = peer_python()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        for copy in range(REPEAT):
            for path in files:
                shutil.copy(path, folder / "in" / f"{copy}-{path.name}")
        ratios = {w: compare(folder, python, files[0].parent, runs, w) for w in TARGETS}
    sys.exit(0 if reached(all(ratios[w] >= TARGETS[w] for w in TARGETS)) else 1)


if __name__ == "__main__":
    main()
