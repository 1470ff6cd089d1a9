"""The Ray engine beside the local one: seconds of a run of about a minute on two workers.

    python benchmarks/bench_ray.py [--documents N] [--rounds N]

Generated pages in web archives go through a recipe like FineWeb's (main text, Gopher, C4, MinHash,
personal data) with `--engine local` and `--engine ray` in alternation. Ray starts a cluster on this
machine each time, and its start counts. The outputs must be the same byte by byte. Exit status 1
where the median with Ray is more than 1.25 times the local one.
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
from benchmarks.shared_texts import reached  # noqa: E402

TARGET = 1.25


def seconds(recipe: Path, pages: Path, out: Path, engine: str) -> float:
    """Of the whole command."""
    command = [sys.executable, "-m", "curate.cli.app", "run", recipe, pages, "-o", out]
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
    hasher = hashlib.sha256()
    for path in sorted([*out.glob("corpus/*"), *out.glob("rejected/*"), out / "decisions.parquet"]):
        hasher.update(path.name.encode() + path.read_bytes())
    return hasher.hexdigest()


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=180_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    taken: dict[str, list[float]] = {"local": [], "ray": []}
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
            for engine, times in taken.items():
                out = folder / f"{engine}-{n}"
                times.append(seconds(recipe, folder / "all", out, engine))
                outputs.add(digest(out))
        if len(outputs) > 1:
            sys.exit("the engines' outputs differ")
    print(f"{options.documents:,} pages, two workers, the same bytes; seconds, medians")
    median = {engine: statistics.median(times) for engine, times in taken.items()}
    for engine, times in taken.items():
        rounds = ", ".join(f"{t:.1f}" for t in sorted(times))
        print(f"  {engine:5} {median[engine]:7.1f}   ({rounds})")
    ratio = median["ray"] / median["local"]
    print(f"  ray / local {ratio:8.3f}   target {TARGET} or less")
    sys.exit(not reached(ratio <= TARGET))


if __name__ == "__main__":
    main()
