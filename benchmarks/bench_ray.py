"""The Ray engine beside the local one: seconds of a run of about a minute on two workers.

    python benchmarks/bench_ray.py [--documents N] [--rounds N]

Generated pages in web archives go through a recipe like FineWeb's (main text, Gopher, C4, MinHash,
personal data) with `--engine local` and `--engine ray` in alternation. Ray starts a cluster on this
machine each time, and its start counts. The outputs must be the same byte by byte. Exit status 1
where the median with Ray is more than 1.25 times the other.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.bench_refresh import RECIPE, write  # noqa: E402

TARGET = 1.25
ENGINES = ("local", "ray")


def seconds(recipe: Path, pages: Path, out: Path, engine: str) -> float:
    """Of the whole command."""
    command = [sys.executable, "-m", "curate.cli", "run", recipe, pages, "-o", out]
    began = time.perf_counter()
    done = subprocess.run(
        [*map(str, command), "--engine", engine, "--workers", "2", "-q"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    return time.perf_counter() - began


def digest(out: Path) -> str:
    """Of corpus, rejected and decisions."""
    found = hashlib.sha256()
    for path in sorted([*out.glob("corpus/*"), *out.glob("rejected/*"), out / "decisions.parquet"]):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=180_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    taken: dict[str, list[float]] = {engine: [] for engine in ENGINES}
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
            for engine in ENGINES:
                out = folder / f"{engine}-{n}"
                taken[engine].append(seconds(recipe, folder / "all", out, engine))
                outputs.add(digest(out))
        if len(outputs) > 1:
            sys.exit("the engines' outputs differ")
    local, ray = (statistics.median(taken[e]) for e in ENGINES)
    print(f"{options.documents:,} pages, two workers, the same bytes; seconds, medians")
    for engine in ENGINES:
        rounds = ", ".join(f"{t:.1f}" for t in sorted(taken[engine]))
        print(f"  {engine:6} {statistics.median(taken[engine]):7.1f}   ({rounds})")
    print(f"  ratio {ray / local:8.3f}   target {TARGET} or less")
    sys.exit(ray / local > TARGET)


if __name__ == "__main__":
    main()
