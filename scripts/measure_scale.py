"""Measures the figures that forecasts use where the user has no run: figures.yaml.

    python scripts/measure_scale.py [--small N] [--large N] [-o FILE]

Shipped recipes run with one worker over a few archives and over many (benchmarks/page_variants.py),
once before that to compile and load; then without what needs pages or a model over generated texts,
of which there can be many more, for what one process does. Two sizes give the fixed seconds and
those of a document. Planning is measured on links to one archive, and on one that is cut. What is
`split` into tasks of a large corpus, and `deciding` of dedup_minhash, are of benchmarks, which
docs/scale.md names, and stay as they are in the table. Run it on an otherwise idle machine. Real
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
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.generated_corpus import write_parquet  # noqa: E402
from benchmarks.page_variants import write_variants  # noqa: E402
from benchmarks.shared_texts import SHARED, english  # noqa: E402
from curate.inspect.forecast.forecast import Figures, run_figures  # noqa: E402

RECIPES = ("fineweb", "ccnet-llama1", "c4", "refinedweb", "dclm-baseline")
TARGET = ROOT / "curate" / "inspect" / "forecast" / "figures.yaml"
# Texts of the two runs of a recipe; 9,000 hashes and suffix arrays take their time.
TEXTS = {"refinedweb": (4_000, 30_000)}
MANY = (20_000, 450_000)
NEED_PAGES = {"url_filter", "extract", "language", "perplexity", "quality", "newline_runs"}
DOCUMENT_BYTES = 3500
LARGE = "dedup_minhash"  # whose deciding is measured on more documents than runs have here
FILES, CUTS = (2_000, 20_000), 60  # links to an archive; the same archive so often in one
TRAINED = 8_000_000  # characters that the n-gram model is trained on: its speed is what counts


def run(folder: Path, *arguments: str) -> None:
    """Runs a command of ours; ends the script where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.setdefault("LLMCURATE_LID_MODEL", str(SHARED / "corpora/models/lid.176.ftz"))
    command = [sys.executable, "-m", "curate.cli.app", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: {done.stderr[-2000:]}")


def measure(folder: Path, recipe: str, source: Path) -> dict[str, Any]:
    """The record of one run over a folder."""
    out = folder / "out"
    run(folder, "run", recipe, str(source), "-o", str(out), "--workers", "1", "-q")
    record: dict[str, Any] = json.loads((out / "run.json").read_text(encoding="utf-8"))
    shutil.rmtree(out)
    print(f"{record['recipe']}: {record['totals']['read']:,} documents", flush=True)
    return record


def measure_python(folder: Path, source: Path) -> list[float]:
    """[seconds, share kept] of a filter from a file: a function that splits a text into words."""
    (folder / "words.py").write_text(
        "def keep(text, metadata):\n    return len(text.split()) >= 20\n", encoding="utf-8"
    )
    run(folder, "filter", "words.py:keep", str(source), "-o", "out", "--workers", "1", "-q")
    record = json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))
    shutil.rmtree(folder / "out")
    step = run_figures(record, "python", Figures("", 0, 0.0, frozenset())).steps["python"]
    return [step.cpu, step.kept]


def measure_planning(folder: Path, archive: Path) -> tuple[list[float], float]:
    """([fixed seconds, seconds a file], seconds to find where an archive is cut, a place)."""
    from curate.formats.inputs import plan_inputs

    def seconds(source: Path, size: int | None) -> tuple[int, float]:
        began = time.process_time()
        parts = len(plan_inputs([str(source)], size).partitions)
        return parts, time.process_time() - began

    (folder / "links").mkdir()
    points = []
    for count in FILES:
        for number in range(count):
            link = folder / "links" / f"{number:05d}.warc.gz"
            if not link.exists():
                os.link(archive, link)
        points.append((count, seconds(folder / "links", None)[1]))
    whole = folder / "whole.warc.gz"
    whole.write_bytes(archive.read_bytes() * CUTS)
    parts, took = seconds(whole, 16 << 20)
    return line(points), took / parts


def train_perplexity(folder: Path) -> None:
    """The n-gram model that CCNet's recipe names."""
    texts, size = folder / "english.jsonl", 0
    with texts.open("w", encoding="utf-8") as file:
        for n, text in enumerate(english()):
            file.write(json.dumps({"id": str(n), "text": text}) + "\n")
            if (size := size + len(text)) > TRAINED:
                break
    ccnet = ("--variant", "ccnet", "--vocab", "16000", "--order", "5", "--discount-fallback")
    run(folder, "perplexity", "train", str(texts), "-o", "models/en", *ccnet, "-q")


def write_recipe(folder: Path, recipe: str, left_out: set[str]) -> str:
    """The shipped recipe without some steps, and without a list that is fetched. Over texts its
    dedups come first, so that they see all documents: generated ones are no language."""
    text = yaml.safe_load((ROOT / "pipelines" / f"{recipe}.yaml").read_text(encoding="utf-8"))
    steps = [s for s in text["steps"] if not left_out.intersection(s)]
    for step in steps:
        step.get("c4", {}).pop("badwords", None)
    if left_out == NEED_PAGES:
        steps.sort(key=lambda s: not next(iter(s)).startswith("dedup"))
    text["steps"] = steps
    path = folder / f"{recipe}-{len(left_out)}.yaml"
    path.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    return str(path)


def steepest(lines: list[list[tuple[int, float]]]) -> list[float]:
    """The line that grows fastest, of runs of about the largest size: a recipe of few columns has a
    short report."""
    most = max(max(points) for points in lines)[0]
    return max(
        (line(points) for points in lines if max(points)[0] * 10 >= most), key=lambda pair: pair[1]
    )


def line(points: list[tuple[int, float]]) -> list[float]:
    """[fixed seconds, seconds a document] through the smallest and the largest run."""
    (few, short), (many, long) = min(points), max(points)
    each = max(0.0, (long - short) / (many - few)) if many > few else long / max(1, many)
    return [max(0.0, short - each * few), each]


def table(
    pages: list[dict[str, Any]],
    texts: list[dict[str, Any]],
    planning: list[float],
    cut: float,
    before: dict[str, Any],
) -> dict[str, Any]:
    """The table as figures.package_table reads it, from records of recipes over pages and texts. A
    step's figures are of the first recipe that has it. before: the table as it was."""
    nothing = Figures("", 0, 0.0, frozenset())
    runs = [run_figures(r, r["recipe"], nothing) for r in pages]
    largest = [r for r in runs if r.documents == max(x.documents for x in runs)]
    main = largest[0]
    steps, dedups = {}, {}
    for figures in largest:
        for label, step in figures.steps.items():
            steps.setdefault(label, [step.cpu, step.kept])
        for label, dedup in figures.dedups.items():
            dedups.setdefault(label, [dedup.sketch, dedup.sketch_bytes, dedup.decision_bytes])
    decided: dict[str, list[tuple[int, float]]] = {}
    shared: dict[str, tuple[int, float]] = {}
    for record in [*texts, *pages]:
        for stage in record["stages"]:
            label, kept = stage.get("decides"), stage["kept"]
            if not label or (record in pages and label in shared):
                continue
            tasks = stage["decided"].get("tasks_cpu", 0.0)
            seconds = stage["decided_cpu"] + tasks
            decided.setdefault(label, []).append((kept, seconds))
            shared[label] = max(shared.get(label, (0, 0.0)), (kept, tasks / seconds))
    once = {"planning": planning}
    for name in ("settling ids", "assembling", "report"):
        by_recipe: dict[str, list[tuple[int, float]]] = {}
        for record in texts:
            point = record["totals"]["read"], seconds_once(record, name)
            by_recipe.setdefault(record["recipe"], []).append(point)
        once[name] = steepest(list(by_recipe.values()))
    return {
        "measured": f"{datetime.date.today().isoformat()}, {cpu_model()}",
        "documents": main.documents,
        "input_bytes": main.input_bytes,
        "formats": sorted(main.formats),
        "stages": {name: vars(main.stages[name]) for name in ("first", "later")},
        "cut": cut,
        "once": once,
        "split": before["split"],
        "steps": steps,
        "dedups": {label: [*dedups[label], shared[label][1]] for label in dedups}
        | {LARGE: [*dedups[LARGE], before["dedups"][LARGE][-1]]},
        "deciding": {label: line(decided[label]) for label in dedups}
        | {LARGE: before["deciding"][LARGE]},
    }


def seconds_once(record: dict[str, Any], name: str) -> float:
    """CPU seconds of what is done once a run."""
    return float(
        record["stages"][0]["settle_cpu"]
        if name == "settling ids"
        else record["driver"]["cpu"][name]
    )


def rounded(value: Any) -> Any:
    """Numbers to three figures."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value


HEAD = """\
# Figures of forecasts without a run: CPU seconds and bytes a document (figures.py names them).
# Written by scripts/measure_scale.py: shipped recipes over variants of 555 real pages
# (benchmarks/page_variants.py), `once` and `deciding` over generated texts; one worker.
# once, deciding: [fixed seconds, seconds a document], planning: a file; cut: seconds a place where
# an archive is cut; split: [seconds a document of the driver, of workers], where tasks do it;
# steps: [seconds, share kept];
# dedups: [seconds to sketch, bytes of sketches, bytes of decisions, share of deciding by workers].
"""


def write_table(path: Path, content: dict[str, Any]) -> None:
    """A line a step."""
    path.write_text(
        HEAD + yaml.safe_dump(rounded(content), sort_keys=False, default_flow_style=None), "utf-8"
    )


def cpu_model() -> str:
    """The name that the system has for the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return text.partition("model name")[2].partition(":")[2].split("\n")[0].strip()
    except OSError:
        return platform.processor() or platform.machine()


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=5, help="archives of some 230 pages")
    parser.add_argument("--large", type=int, default=30)
    parser.add_argument("-o", "--out", type=Path, default=TARGET)
    options = parser.parse_args()
    pages: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = folder / "few", folder / "many"
        few.mkdir()
        many.mkdir()
        write_variants(few, range(options.small))
        write_variants(many, range(options.small, options.small + options.large))
        train_perplexity(folder)
        for recipe in RECIPES:
            path = write_recipe(folder, recipe, {"quality"})
            measure(folder, path, few)  # compiles
            pages += [measure(folder, path, source) for source in (few, many)]
            for documents in TEXTS.get(recipe, MANY):
                source = folder / f"texts-{documents}"
                if not source.exists():
                    source.mkdir()
                    write_parquet(source, documents * DOCUMENT_BYTES, 32e6)
                texts.append(measure(folder, write_recipe(folder, recipe, NEED_PAGES), source))
        of_python = measure_python(folder, folder / f"texts-{MANY[0]}")
        planning, cut = measure_planning(folder, next(few.iterdir()))
    before = yaml.safe_load(TARGET.read_text(encoding="utf-8"))
    figures = table(pages, texts, planning, cut, before)
    figures["steps"]["python"] = of_python
    write_table(options.out, figures)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
