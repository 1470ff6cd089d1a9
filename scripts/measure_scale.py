"""Measures what forecasts rest on where the user has no run: curate/scale/measured.json.

    python scripts/measure_scale.py [--small N] [--large N] [--only RECIPE...] [-o FILE]
    python scripts/measure_scale.py --deciding STEP...

Shipped recipes run with one worker over a few archives and over many (benchmarks/page_variants.py),
once before that to compile and load; the table holds their run.json, without what forecasts do not
read. Two sizes, because what one process does once has a fixed part; then the same over generated
texts, many more documents, for what one process does. Run it on an otherwise idle machine. Real
pages and texts are found through LLMCURATE_SHARED; `dclm-baseline` runs without its classifier,
whose model is not shipped.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.generated_corpus import write_parquet  # noqa: E402
from benchmarks.page_variants import write_variants  # noqa: E402
from benchmarks.shared_texts import SHARED, english  # noqa: E402

RECIPES = ("fineweb", "ccnet-llama1", "c4", "refinedweb", "dclm-baseline")
TARGET = ROOT / "curate" / "scale" / "measured.json"
# What one process does shows in many documents only: generated texts, without pages.
ONCE = {
    "fineweb": (20_000, 200_000),
    "c4": (20_000, 200_000),
    "ccnet-llama1": (20_000, 200_000),
    "dclm-baseline": (20_000, 200_000),
    "refinedweb": (4_000, 30_000),  # its 9,000 hashes and its suffix array take their time
}
# Steps that are split into tasks where there is much to decide, alone: two groups and more.
SPLIT = (
    ("fineweb", "dedup_minhash"),
    ("c4", "dedup_exact"),
    ("ccnet-llama1", "dedup_passages"),
    ("ccnet-llama1", "perplexity"),
)
MANY = 450_000
LINE = 100  # characters of the short texts on which `perplexity` decides: scoring is slow
LEFT_OUT = {"url_filter", "extract", "language", "perplexity", "quality", "newline_runs"}
DOCUMENT_BYTES = 3500
TRAINED = 8_000_000  # characters that the n-gram model is trained on: its speed is what counts
STAGE = (
    "steps", "read", "kept", "rejected", "bytes_in", "bytes_out", "seconds", "cpu", "written",
    "start", "primary", "cut", "cut_bytes", "text_in", "payload_in", "text_out", "worked",
    "peak_bytes", "decides", "decided_cpu", "settle_cpu",
)  # fmt: skip


def trimmed(record: dict[str, Any], data: str) -> dict[str, Any]:
    """What forecasts read of a run's record; no paths but the inputs' names."""
    stages = []
    for stage in record["stages"]:
        one = {k: stage[k] for k in STAGE if k in stage}
        one["primary"] = stage["primary"]
        one["cut"], one["cut_bytes"] = {}, {}
        if "decided" in stage:
            one["decided"] = {k: stage["decided"][k] for k in ("seconds", "tasks_cpu")}
        stages.append(one)
    inputs = record["inputs"]
    size = sum(f["bytes"] for f in inputs)
    kind = {k: inputs[0][k] for k in ("format",)}
    return {
        "recipe": record["recipe"],
        "data": data,
        "versions": record["versions"],
        "inputs": [{"path": Path(inputs[0]["path"]).name, **kind, "bytes": size}],
        "partitions": record["partitions"],
        "steps": [{k: s[k] for k in ("label", "name", "settings")} for s in record["steps"]],
        "totals": {k: record["totals"][k] for k in ("read", "kept", "bytes_in", "bytes_out")},
        "stages": stages,
        "driver": record["driver"],
    }


def cpu_model() -> str:
    """What the system calls the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return text.partition("model name")[2].partition(":")[2].split("\n")[0].strip()
    except OSError:
        return platform.processor() or platform.machine()


def run(folder: Path, *arguments: str) -> None:
    """A command of ours; ends the script where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.setdefault("LLMCURATE_LID_MODEL", str(SHARED / "corpora/models/lid.176.ftz"))
    command = [sys.executable, "-m", "curate.cli.app", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: {done.stderr[-2000:]}")


def prepare(folder: Path, recipe: str) -> str:
    """What to run: the recipe's name, or a file without the step whose model is not shipped."""
    if recipe == "ccnet-llama1" and not (folder / "models/en").exists():
        texts = folder / "english.jsonl"
        with texts.open("w", encoding="utf-8") as file:
            size = 0
            for n, text in enumerate(english()):
                file.write(json.dumps({"id": str(n), "text": text}) + "\n")
                if (size := size + len(text)) > TRAINED:
                    break
        ccnet = ("--variant", "ccnet", "--vocab", "16000", "--order", "5", "--discount-fallback")
        run(folder, "perplexity", "train", str(texts), "-o", "models/en", *ccnet, "-q")
    if recipe == "dclm-baseline":
        text = yaml.safe_load((ROOT / "pipelines" / f"{recipe}.yaml").read_text(encoding="utf-8"))
        text["steps"] = [s for s in text["steps"] if "quality" not in s]
        path = folder / f"{recipe}.yaml"
        path.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
        return str(path)
    return recipe


def text_alone(folder: Path, recipe: str, only: str = "") -> str:
    """The recipe without what reads pages or needs a model, what looks at the whole corpus first,
    so that it sees all documents: generated ones are no language. only: that step and no other."""
    text = yaml.safe_load((ROOT / "pipelines" / f"{recipe}.yaml").read_text(encoding="utf-8"))
    left = [s for s in text["steps"] if not LEFT_OUT.intersection(s)]
    first = [s for s in left if next(iter(s)).startswith("dedup")]
    text["steps"] = first + [s for s in left if s not in first]
    text["name"] = f"{recipe}, text alone"
    if only:
        steps = yaml.safe_load((ROOT / "pipelines" / f"{recipe}.yaml").read_text(encoding="utf-8"))
        text["steps"] = [s for s in steps["steps"] if only in s]
        text["name"] = f"{recipe}, {only} alone"
    path = folder / f"{recipe}-text{only}.yaml"
    path.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    return str(path)


def once(folder: Path, recipe: str, sizes: tuple[int, int], only: str = "") -> list[dict[str, Any]]:
    """Records of runs over generated texts, whose single process has more to do."""
    runs: list[dict[str, Any]] = []
    short = only == "perplexity"
    for documents in (sizes[0], *sizes):  # the first compiles and loads
        source = folder / f"{'short' if short else 'text'}-{documents}"
        target = folder / f"{recipe}-text-{documents}"
        if not source.exists():
            source.mkdir()
            if short:
                write_short(source, documents)
            else:
                write_parquet(source, documents * DOCUMENT_BYTES, 32e6)
        given = text_alone(folder, recipe, only)
        run(folder, "run", given, str(source), "-o", str(target), "--workers", "1", "-q")
        record = json.loads((target / "run.json").read_text(encoding="utf-8"))
        runs.append(trimmed(record, f"{record['totals']['read']:,} generated texts"))
        shutil.rmtree(target)
    return runs[1:]


def write_short(folder: Path, documents: int) -> None:
    """Short English texts, 20,000 a file: pieces of generated ones."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks.generated_corpus import documents as generated

    texts = (
        row["text"][begin : begin + LINE]
        for row in generated(documents)
        for begin in range(0, len(row["text"]) - LINE, LINE)
    )
    for part, begin in enumerate(range(0, documents, 20_000)):
        some = list(islice(texts, min(20_000, documents - begin)))
        names = [str(begin + n) for n in range(len(some))]
        table = pa.table({"id": names, "text": some, "lang": ["en"] * len(some)})
        pq.write_table(table, folder / f"in-{part:05d}.parquet")


def again(table: Path, steps: list[str]) -> None:
    """Measures what decides these steps, and puts it into a table in the place of what it has."""
    known = json.loads(table.read_text(encoding="utf-8"))
    runs = known.pop("runs")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for recipe, step in SPLIT:
            if step in steps:
                prepare(folder, recipe)
                found = once(folder, recipe, (ONCE[recipe][0], MANY), step)
                runs = [r for r in runs if r["recipe"] != found[0]["recipe"]] + found
    write_table(table, known, runs)


def write_table(path: Path, head: dict[str, str], runs: list[dict[str, Any]]) -> None:
    """The table with a run a line."""
    lines = ",\n".join(json.dumps(r, ensure_ascii=False) for r in runs)
    path.write_text(f'{json.dumps(head)[:-1]}, "runs": [\n{lines}\n]}}\n', encoding="utf-8")


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=5, help="archives of some 230 pages")
    parser.add_argument("--large", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=RECIPES)
    parser.add_argument("-o", "--out", type=Path, default=TARGET)
    parser.add_argument("--deciding", nargs="+", help="these steps' deciding alone, anew")
    options = parser.parse_args()
    if options.deciding:
        return again(options.out, options.deciding)
    runs = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = folder / "few", folder / "many"
        few.mkdir()
        many.mkdir()
        what = write_variants(few, range(options.small))
        write_variants(many, range(options.small, options.small + options.large))
        for recipe in options.only:
            given = prepare(folder, recipe)
            for source, out in ((few, "warm"), (few, "small"), (many, "large")):
                target = folder / f"{recipe}-{out}"
                run(folder, "run", given, str(source), "-o", str(target), "--workers", "1", "-q")
                if out != "warm":
                    record = json.loads((target / "run.json").read_text(encoding="utf-8"))
                    runs.append(trimmed(record, f"{record['totals']['read']:,} {what}"))
            print(f"{recipe}: {runs[-1]['totals']}", flush=True)
        for recipe, sizes in ONCE.items() if options.only == RECIPES else ():
            runs += once(folder, recipe, sizes)
            print(f"{runs[-1]['recipe']}: {runs[-1]['totals']}", flush=True)
        for recipe, step in SPLIT if options.only == RECIPES else ():
            runs += once(folder, recipe, (ONCE[recipe][0], MANY), step)
            print(f"{runs[-1]['recipe']}: {runs[-1]['totals']}", flush=True)
    head = {
        "about": "Written by scripts/measure_scale.py; not by hand.",
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_model(),
    }
    write_table(options.out, head, runs)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
