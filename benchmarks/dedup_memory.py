"""Memory of every dedup method over gigabytes of text: does it stay within 6 GiB?

    python benchmarks/dedup_memory.py [--gb 4] [--methods exact,minhash] [--folder DIR]

One generated corpus with planted copies (generated_corpus.py) as parquet files; each method runs in
a process of its own with two workers. Memory is sampled from /proc/PID/smaps_rollup of the whole
tree of processes: PSS, in which a page that n processes share counts 1/n in each, so the sum counts
it once. Mapped files count as far as they are in memory, though the system may take those pages
back; how much that was at the peak is printed. What the kernel caches of read files is not counted.
Exit status 1 where the sum passes the limit. Needs some three times the size on disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.generated_corpus import write_parquet

ROOT = Path(__file__).resolve().parents[1]
LIMIT_GIB = 6.0
GIB = 2**30
INTERVAL = 0.1


@dataclass
class Peak:
    """Bytes. total: PSS of the tree at its worst, files: mapped files in it; largest: the most RSS
    of one process."""

    total: int = 0
    files: int = 0
    largest: int = 0


def _sizes(pid: int) -> dict[str, int]:
    """Bytes by name in smaps_rollup; empty for a process that is gone."""
    sizes = {}
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file.read().splitlines()[1:]:
            name, _, rest = line.partition(":")
            sizes[name] = int(rest.split()[0]) * 1024
    return sizes


def run(command: list[str]) -> tuple[float, Peak]:
    """(seconds, peak) of a command; ends the script with its output where it fails."""
    import psutil

    peak = Peak()
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        me = psutil.Process(process.pid)
        while process.poll() is None:
            pids = [process.pid]
            with suppress(psutil.Error):
                pids += [p.pid for p in me.children(recursive=True)]
            samples = [s for s in map(_sizes, pids) if s]
            total = sum(s.get("Pss", 0) for s in samples)
            if total > peak.total:
                peak.total, peak.files = total, sum(s.get("Pss_File", 0) for s in samples)
            peak.largest = max([peak.largest, *(s.get("Rss", 0) for s in samples)])
            time.sleep(INTERVAL)
        seconds = time.perf_counter() - begin
        if process.returncode:
            output.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{output.read()[-2000:]}")
    return seconds, peak


def disk(folder: Path) -> int:
    """Bytes of all files below a folder, hard links once."""
    seen = {(s.st_dev, s.st_ino): s.st_size for p in folder.rglob("*") for s in [p.lstat()]}
    return sum(seen.values())


def main() -> None:
    from curate.dedup.methods import methods as known_methods

    known = known_methods()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gb", type=float, default=4.0, help="10^9 bytes of text")
    parser.add_argument("--methods", default=",".join(known), help="comma between")
    parser.add_argument("--folder", help="where files are written; default: a temporary folder")
    options = parser.parse_args()
    methods = options.methods.split(",")
    if unknown := [m for m in methods if any(n not in known for n in m.split("+"))]:
        parser.error(f"unknown method {unknown[0]}; known: {', '.join(known)}")
    good = True
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        (folder / "in").mkdir()
        began = time.perf_counter()
        documents, size = write_parquet(folder / "in", options.gb * 1e9)
        print(
            f"{documents} documents, {size / 1e9:.2f} GB of text, made in"
            f" {time.perf_counter() - began:.0f} s; limit {LIMIT_GIB:g} GiB",
            flush=True,
        )
        for method in methods:
            out = folder / "out"
            command = [sys.executable, "-m", "curate.cli.app", "dedup", str(folder / "in")]
            command += ["--method", method, "-o", str(out), "--workers", "2", "--quiet"]
            seconds, peak = run(command)
            totals = json.loads((out / "run.json").read_text())["totals"]
            over = peak.total > LIMIT_GIB * GIB
            good &= not over
            print(
                f"  {method:<14}{documents / seconds:8.0f} documents/s {size / seconds / 1e6:7.1f}"
                f" MB/s {seconds:7.1f} s, kept {totals['kept']}; peak of all"
                f" {peak.total / GIB:.2f} GiB (mapped files {peak.files / GIB:.2f}), of a process"
                f" {peak.largest / GIB:.2f} GiB; OUT {disk(out) / 1e9:.2f} GB"
                f"{'  OVER THE LIMIT' if over else ''}",
                flush=True,
            )
            shutil.rmtree(out)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
