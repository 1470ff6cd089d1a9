"""Kills refreshes with SIGKILL at random moments, and compares what they leave with one whole run.

    python scripts/kill_refresh.py --kills 20

Three inputs with copies of each other come one after the other, through exact, MinHash and Bloom
dedup. Every call is killed at a random moment, some again and again, until it comes through. Then
`current` must hold the documents, texts and ids of one run over the three under the policy `first`,
its parts must be the bytes of refreshes that nobody disturbed, every snapshot must be whole, and
nothing half-done may be left. Exit code 0 if all of that is so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.generated_corpus import documents  # noqa: E402

STEPS = """\
read: {partition_bytes: 60000, batch_rows: 50}
steps:
  - dedup_exact: {survivor: first}
  - dedup_minhash: {survivor: first}
  - dedup_bloom: {expected: 1000000, false_positives: 0.01}
"""
NOTHING_NEW = 3


def write_inputs(folder: Path, count: int) -> list[Path]:
    """A, B and C; a fifth of each later one stands in the one before, and all share ids."""
    pool = list(documents(3 * count))
    files = []
    for n in range(3):
        rows = pool[n * count : (n + 1) * count]
        if n:
            rows += pool[(n - 1) * count : (n - 1) * count + count // 5]
        files.append(folder / f"{n}.jsonl")
        with files[-1].open("w", encoding="utf-8") as f:
            f.writelines(json.dumps(row | {"id": f"d{i}"}) + "\n" for i, row in enumerate(rows))
    return files


def command(*arguments: object) -> list[str]:
    """The command line with the arguments."""
    line = [sys.executable, "-m", "curate.cli.app", *map(str, arguments), "--workers", "2", "-q"]
    return line


def call(*arguments: object) -> float:
    """Runs to the end; seconds."""
    began = time.perf_counter()
    done = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, NOTHING_NEW):
        raise SystemExit(f"FAILED: exit code {done.returncode}: {done.stderr[-2000:]}")
    return time.perf_counter() - began


def killed(delay: float, *arguments: object) -> bool:
    """Kills the command after so many seconds; False where it was over before."""
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(command(*arguments), cwd=ROOT, stdout=nothing, stderr=nothing)
    try:
        process.wait(timeout=delay)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True


def rows(folder: Path) -> list[tuple[str, str]]:
    """(id, text) of a corpus, in order."""
    pairs: list[tuple[str, str]] = []
    for path in sorted(folder.glob("part-*.parquet")):
        table: Any = pq.ParquetFile(path).read(columns=["id", "text"])
        pairs += zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True)
    return pairs


def digests(folder: Path) -> dict[str, str]:
    """sha256 of a corpus's parts."""
    parts = sorted(folder.glob("part-*.parquet"))
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in parts}


def check(home: Path, wanted: list[tuple[str, str]], calm: dict[str, str]) -> None:
    """Ends the script where HOME is not as it should be."""
    if rows(home / "current") != wanted:
        raise SystemExit("FAILED: the corpus is not that of one run over all inputs")
    if digests(home / "current") != calm:
        raise SystemExit("FAILED: the parts are not the bytes of undisturbed refreshes")
    snapshots = sorted(p for p in (home / "corpus").iterdir() if p.is_dir())
    for folder in snapshots:
        entries = json.loads(folder.with_name(f"{folder.name}.json").read_text())["files"]
        if {n: e["sha256"] for n, e in entries.items()} != digests(folder):
            raise SystemExit(f"FAILED: {folder} is not what its manifest says")
    if len(snapshots) != 3:
        raise SystemExit(f"FAILED: three refreshes made {len(snapshots)} snapshots")
    leftovers = [p for p in home.rglob("*") if p.name.startswith(".") or p.name == "stages"]
    if leftovers:
        raise SystemExit(f"FAILED: {leftovers} were left behind")


def main() -> None:
    """See the module's docstring."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--documents", type=int, default=300)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    draw = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write_inputs(folder, chosen.documents)
        recipe = folder / "kills.yaml"
        recipe.write_text(STEPS, encoding="utf-8")
        call("run", recipe, *files, "-o", folder / "whole")
        wanted = rows(folder / "whole" / "corpus")
        length = 0.0
        for file in files:
            length = call("refresh", recipe, file, "-o", folder / "calm")
        calm = digests(folder / "calm" / "current")
        check(folder / "calm", wanted, calm)
        print(f"undisturbed: {length:.1f} s a refresh, {len(wanted)} documents kept", flush=True)
        kills = rounds = 0
        while kills < chosen.kills:
            home = folder / f"home-{rounds}"
            rounds += 1
            for nth, file in enumerate(files):
                while kills < chosen.kills and draw.random() < 0.75:
                    delay = draw.uniform(0.3, 1.0) * length
                    if not killed(delay, "refresh", recipe, file, "-o", home):
                        length = delay  # it took less than that
                        break
                    kills += 1
                    stages = [p.name[:20] for p in home.glob("runs/*/stages/*") if p.is_dir()]
                    there = sum(p.is_dir() for p in (home / "corpus").glob("[!.]*"))
                    print(
                        f"  killed input {nth + 1} after {delay:.2f} s:"
                        f" {len(stages)} stages begun, {there} snapshots",
                        flush=True,
                    )
                call("refresh", recipe, file, "-o", home)
            check(home, wanted, calm)
        print(f"{kills} kills in {rounds} rounds: every corpus is that of one whole run")


if __name__ == "__main__":
    main()
