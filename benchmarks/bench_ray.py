"""The Ray engine beside the local one: seconds of a run of about a minute on two workers.

    python benchmarks/bench_ray.py [--documents N] [--rounds N] [--exchange]

Generated pages in web archives go through a recipe like FineWeb's (main text, Gopher, C4, MinHash,
personal data) with `--engine local` and `--engine ray` in alternation. With --exchange there is a
third: Ray with workers that share no folder, but pass files through file:// (disks, no network).
Ray starts a cluster on this machine each time, and its start counts. The outputs must be the same
byte by byte. Exit status 1 where the median with Ray is more than 1.25 times the local one, or that
with the exchange more than 1.5 times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.bench_refresh import RECIPE, write  # noqa: E402
from benchmarks.shared_texts import reached  # noqa: E402

TARGETS = {"ray": 1.25, "exchange": 1.5}


def seconds(recipe: Path, pages: Path, out: Path, engine: str) -> float:
    """Of the whole command."""
    command = [sys.executable, "-m", "curate.cli.app", "run", recipe, pages, "-o", out]
    where = ["--engine", "local" if engine == "local" else "ray"]
    if engine == "exchange":
        where += ["--exchange", f"file://{recipe.parent}/store"]
    began = time.perf_counter()
    done = subprocess.run(
        [*map(str, command), *where, "--workers", "2", "-q"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    return time.perf_counter() - began


def digest(out: Path) -> str:
    """Of corpus, rejected and decisions."""
    hasher = hashlib.sha256()
    for path in sorted([*out.glob("corpus/*"), *out.glob("rejected/*"), out / "decisions.parquet"]):
        hasher.update(path.name.encode() + path.read_bytes())
    return hasher.hexdigest()


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=180_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--exchange", action="store_true")
    options = parser.parse_args()
    engines = ("local", "ray", *(["exchange"] if options.exchange else []))
    taken: dict[str, list[float]] = {engine: [] for engine in engines}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, count in (("few", 1000), ("all", options.documents)):
            (folder / part).mkdir()
            write(folder / part, count)
        recipe = folder / "r.yaml"
        recipe.write_text(RECIPE, encoding="utf-8")
        seconds(recipe, folder / "few", folder / "warm", "local")  # compiles what is not yet
        outputs = set()
        for n in range(options.rounds):
            for engine in engines:
                out = folder / f"{engine}-{n}"
                taken[engine].append(seconds(recipe, folder / "all", out, engine))
                outputs.add(digest(out))
        if len(outputs) > 1:
            sys.exit("the engines' outputs differ")
        carried = [
            json.loads((folder / f"exchange-{n}/run.json").read_text())["driver"]["exchange"]
            for n in range(options.rounds if options.exchange else 0)
        ]
        kept = sum(f.stat().st_size for f in (folder / "store").rglob("*") if f.is_file())
    print(f"{options.documents:,} pages, two workers, the same bytes; seconds, medians")
    median = {engine: statistics.median(times) for engine, times in taken.items()}
    for engine in engines:
        rounds = ", ".join(f"{t:.1f}" for t in sorted(taken[engine]))
        print(f"  {engine:8} {median[engine]:7.1f}   ({rounds})")
    for figures in carried[:1]:
        print(
            f"  the driver put {figures['put'] / 1e6:,.1f} MB into the exchange and fetched"
            f" {figures['fetched'] / 1e6:,.1f} MB; {kept / len(carried) / 1e6:,.1f} MB stay there"
        )
    missed = False
    for engine in engines[1:]:
        ratio = median[engine] / median["local"]
        print(f"  {engine} / local {ratio:8.3f}   target {TARGETS[engine]} or less")
        missed = missed or ratio > TARGETS[engine]
    sys.exit(not reached(not missed))


if __name__ == "__main__":
    main()
