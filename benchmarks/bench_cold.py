"""The first run on a machine, whose kernels are compiled, over one whose kernels are there.

    python benchmarks/bench_cold.py [--python ENV/bin/python]

--python is of an environment in which a wheel of `make wheel` is installed: its first run compiles
nothing. Else commands are those of this checkout.

`run fineweb` without its language step, which needs a model, on an archive of the demo's web, `run
fineweb` with it where LLMCURATE_LID_MODEL names one, `filter c4` and `dedup --method minhash` on
100 of its documents: wall and CPU seconds of the whole command, cold in an empty folder of kernels
each time (median of three) and warm (of five), and what `warmup` takes. Exit status 1 where a
command is slower than its target in wall time, which holds for two idle cores.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import SMOKE, reached, sized

ROOT = Path(__file__).resolve().parents[1]
COLD, WARM = sized(3, 1), sized(5, 1)
RECIPE = """
name: fineweb-without-language
steps:
  - url_filter
  - extract
  - gopher_repetition
  - gopher_quality
  - c4
  - fineweb_quality
  - dedup_minhash
  - pii
"""
# Wall seconds: cold, warm.
TARGETS = {"run fineweb": (25.0, None), "filter c4": (8.0, 1.0), "dedup minhash": (None, 1.3)}


def timed(python: str, arguments: list[str], kernels: Path, folder: Path) -> tuple[float, float]:
    """(wall, CPU) seconds of a command."""
    out = folder / f"out-{time.monotonic_ns()}"
    line = [python, "-m", "llmcurate", *arguments]
    line += [] if arguments[0] == "warmup" else ["-o", str(out), "--workers", "2"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kernels)}
    if python == sys.executable:
        path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        environment["PYTHONPATH"] = os.pathsep.join(path)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    line += ["--quiet"]
    subprocess.run(line, env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu


def main() -> None:
    import pyarrow.parquet as pq

    from curate.demo.web import build_web

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    python = parser.parse_args().python
    missed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = build_web(folder / "web").paths[0]
        (folder / "recipe.yaml").write_text(RECIPE)
        kernels = folder / "kernels"
        extract = ["extract", str(archive), "-o", str(folder / "texts"), "--quiet"]
        if not SMOKE:
            print(
                "warmup: {:.1f} s wall, {:.1f} s CPU".format(
                    *timed(python, ["warmup"], kernels, folder)
                )
            )
        subprocess.run([sys.executable, "-m", "llmcurate", *extract], check=True)
        texts = pq.read_table(folder / "texts" / "corpus").slice(0, 100)
        pq.write_table(texts, folder / "100.parquet")
        commands = {
            "run fineweb but for language": ["run", str(folder / "recipe.yaml"), str(archive)],
            "filter c4": ["filter", "c4", str(folder / "100.parquet")],
            "dedup minhash": ["dedup", "--method", "minhash", str(folder / "100.parquet")],
        }
        if "LLMCURATE_LID_MODEL" in os.environ:
            commands = {"run fineweb": ["run", "fineweb", str(archive)], **commands}
        for title, arguments in list(commands.items())[sized(0, 1) : sized(None, 2)]:
            empty = [folder / f"cold-{title}-{k}" for k in range(COLD)]
            cold = [timed(python, arguments, kernels, folder) for kernels in empty]
            warm = [timed(python, arguments, kernels, folder) for _ in range(WARM)]
            figures = []
            for times, target in zip((cold, warm), TARGETS.get(title, (None, None)), strict=True):
                wall, cpu = (statistics.median(part) for part in zip(*times, strict=True))
                figures.append(wall)
                missed = missed or (target is not None and wall > target)
                note = f" (target {target:g})" if target else ""
                name = "cold" if times is cold else "warm"
                print(f"{title}, {name}: {wall:.2f} s wall{note}, {cpu:.2f} s CPU")
            print(f"  cold over warm: {figures[0] / figures[1]:.1f}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"peak memory of a process: {peak:.0f} MiB")
    sys.exit(0 if reached(not missed) else 1)


if __name__ == "__main__":
    main()
