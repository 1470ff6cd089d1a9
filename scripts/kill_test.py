"""Kills a run with SIGKILL at random moments, resumes it, and compares what it leaves.

    python scripts/kill_test.py --kills 20

The recipe filters, deduplicates twice, trains a tokenizer and encodes shards. Every kill prints
when it came and what stood in OUT; after each one the workers must be gone. In half of the rounds
the run is killed again while it resumes. At the end of a round the run goes on to its end, and
corpus/, rejected/, decisions.parquet, tokenizer.json and the shards must equal those of a run that
nobody disturbed, byte by byte. Exit code 0 if all do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
RECIPE = """\
name: kills
read: {partition_bytes: 12000, batch_rows: 40}
steps:
  - c4: {min_sentences: 2}
  - dedup_exact: {key: url, survivor: newest}
  - dedup_exact: {key: text, survivor: longest}
  - tokenizer: {vocab: 400}
  - shards: {shard_tokens: 4000}
"""
PROMISED = ("corpus", "rejected", "decisions.parquet", "tokenizer.json", "manifest.json")
WORDS = "the house stands on a hill and the river below it runs clear and cold".split()


def write_input(path: Path, count: int) -> None:
    """Documents in which every 5th repeats a text and URLs come twice."""
    draw = random.Random(0)
    text = ""
    with path.open("w", encoding="utf-8") as f:
        for i in range(count):
            if i % 5 != 4:
                text = "\n".join(
                    " ".join(draw.choices(WORDS, k=9)).capitalize() + "." for _ in range(6)
                )
            url = f"https://host.test/{i // 2 if i % 3 else i}"
            date = f"2020-01-{draw.randrange(1, 29):02d}"
            f.write(json.dumps({"id": f"d{i}", "text": text, "url": url, "date": date}) + "\n")


def digests(out: Path) -> dict[str, str]:
    """sha256 of everything that must not differ."""
    tops = [out / name for name in PROMISED] + sorted(out.glob("tokens-*"))
    paths = [p for top in tops for p in ([top] if top.is_file() else sorted(top.rglob("*")))]
    return {
        str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in paths
        if p.is_file()
    }


def start(folder: Path, out: Path, workers: int) -> subprocess.Popen[bytes]:
    """`llmcurate run` in a process of its own."""
    command = [sys.executable, "-m", "curate.cli", "run", str(folder / "kills.yaml")]
    command += [str(folder / "in.jsonl"), "-o", str(out), "--workers", str(workers), "-q"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def standing(out: Path) -> str:
    """What a killed run left, in a few words."""
    stages = sorted(p for p in out.glob("stages/*") if p.is_dir())
    kept = sum(len(list(s.glob("part-*.kept.parquet"))) for s in stages)
    names = ("corpus", ".corpus-new", "tokenizer.json", "manifest.json")
    there = [n for n in names if (out / n).exists()]
    return f"{len(stages)} stages begun, {kept} partitions, {' '.join(there) or 'no output'}"


def kill(folder: Path, out: Path, workers: int, delay: float) -> bool:
    """Kills a run after delay seconds; False where it was over before."""
    process = start(folder, out, workers)
    try:
        process.wait(timeout=delay)
        return False
    except subprocess.TimeoutExpired:
        pass
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    gone, alive = psutil.wait_procs(children, timeout=3)
    print(f"  killed after {delay:.2f} s: {standing(out)}; {len(gone)} workers gone", flush=True)
    if alive:
        raise SystemExit(f"FAILED: workers {[p.pid for p in alive]} outlive their run")
    return True


def finish(folder: Path, out: Path, workers: int) -> float:
    """Runs to the end; seconds."""
    began = time.perf_counter()
    process = start(folder, out, workers)
    error = process.communicate()[1]
    if process.returncode != 0:
        raise SystemExit(f"FAILED: exit code {process.returncode}: {error.decode()[-2000:]}")
    return time.perf_counter() - began


def main() -> None:
    """See the module's docstring."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--documents", type=int, default=400)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    draw = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kills.yaml").write_text(RECIPE, encoding="utf-8")
        write_input(folder / "in.jsonl", chosen.documents)
        length = finish(folder, folder / "calm", chosen.workers)
        wanted = digests(folder / "calm")
        print(f"undisturbed: {length:.2f} s, {len(wanted)} files", flush=True)
        kills = rounds = 0
        while kills < chosen.kills:
            out = folder / "killed"
            shutil.rmtree(out, ignore_errors=True)
            rounds += 1
            again = True
            while again and kills < chosen.kills:
                again = kill(folder, out, chosen.workers, draw.uniform(0.25, 1.0) * length)
                kills += again
                again = again and draw.random() < 0.5
            finish(folder, out, chosen.workers)
            if digests(out) != wanted:
                raise SystemExit(f"FAILED: {out} differs after {kills} kills")
            left = [p.name for p in out.rglob("*") if p.name.startswith(".")]
            if left:
                raise SystemExit(f"FAILED: {left} were left behind")
    print(f"{kills} kills in {rounds} rounds: the same bytes every time")


if __name__ == "__main__":
    main()
