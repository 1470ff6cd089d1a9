"""What-if on 1,000,000 documents: seconds and memory of the whole command.

    python benchmarks/bench_whatif.py [--documents N] [--times N]

The documents are made up, in the form of a run's folders: texts of 200 to 1,500 bytes, four
languages, the columns and rules of gopher_quality, gopher_repetition, fineweb_quality and
document_length, with values drawn so that three quarters are kept. `llmcurate whatif OUT --set
gopher_quality.min_words=80 --json` runs in a process of its own: the first time it also reads how
long the texts are, and that is said apart; the median of the later ones is compared with the
target. Exit status 1 beyond 2 s a million.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.shared_texts import reached  # noqa: E402

BATCH, PART, SECONDS = 10_000, 100_000, 2.0
STEPS = ["gopher_quality", "gopher_repetition", "fineweb_quality", "document_length"]
CHILD = """
import resource, sys
from curate.cli import app as cli
sys.argv = ["llmcurate", *sys.argv[1:]]
code = cli.invoke(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, file=sys.stderr)
sys.exit(code)
"""


def make(out: Path, documents_: int) -> None:
    """Writes OUT/corpus, OUT/rejected, recipe.yaml and run.json as a run leaves them."""
    import numpy as np
    import pyarrow as pa
    import yaml

    from curate.documents.attributes import pack
    from curate.documents.documents import NUMBER, documents
    from curate.documents.edits import EDIT, EDITS
    from curate.documents.limits import decide
    from curate.steps.recipe import compose
    from llmcurate.base.disk.parquet_writer import TableWriter

    recipe = compose("bench", [(n, {"min": 40} if "length" in n else {}) for n in STEPS], ())
    draw = np.random.default_rng(1)
    filler = "The river runs past the old mill and nobody works there any more. " * 24
    langs = pa.array(["en", "de", "fr", "th"])
    writers: list[TableWriter] = []
    for start in range(0, documents_, BATCH):
        if start % PART == 0:
            for writer in writers:
                writer.close()
            name = f"part-{start // PART:05d}.parquet"
            writers = [TableWriter(out / kind / name) for kind in ("corpus", "rejected")]
        number = min(BATCH, documents_ - start)
        size = draw.integers(200, 1500, number)
        batch = documents(
            {
                "id": [f"document-{i}" for i in range(start, start + number)],
                "text": [f"{filler[:n]} {i}" for i, n in enumerate(size.tolist())],
                "lang": langs.take(pa.array(draw.integers(0, 4, number))),
            }
        )
        for step in recipe.document_steps:
            docs = batch.within(step.label)
            for column in dict.fromkeys(x.column for x in step.limits()):
                docs = docs.annotate(column, values(column, number, draw))
            batch = decide(docs, step.limits())
        for writer, table in zip(writers, batch.split(), strict=True):
            none = pa.nulls(len(table), pa.list_(EDIT))
            writer.write(pack(table.drop_columns([NUMBER]).append_column(EDITS, none)))
    for writer in writers:
        writer.close()
    (out / "recipe.yaml").write_text(yaml.safe_dump(recipe.resolved(), sort_keys=False))
    stage = {"folder": "documents", "steps": STEPS}
    record = {"recipe": "bench", "stages": [stage], "products": [], "totals": {}}
    (out / "run.json").write_text(json.dumps(record))


def values(column: str, number: int, draw):
    """number[rows] as real ones lie: most documents on the good side of every limit."""
    import numpy as np

    if column in ("words", "lines"):
        return draw.lognormal(6 if column == "words" else 3, 1, number).astype(np.int32)
    if column == "word_length":
        return draw.normal(4.7, 0.6, number)
    if column == "stop_words":
        return draw.integers(1, 9, number).astype(np.int32)
    if column in ("alpha_words", "end_marks"):
        return 1 - draw.beta(1, 12, number)
    scores = draw.beta(1, 60, number)
    if column.startswith(("duplicate", "bullet", "hash", "ellipsis")):
        scores[draw.random(number) < 0.7] = 0  # most documents repeat nothing and have no bullets
    return scores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.documents)
        command = [sys.executable, "-c", CHILD, "whatif", folder]
        command += ["--set", "gopher_quality.min_words=80", "--json"]
        seconds, core, peak = [], [], 0
        for _ in range(options.times + 1):
            began = time.perf_counter()
            done = subprocess.run(
                command,
                check=True,
                capture_output=True,
                text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
            seconds.append(time.perf_counter() - began)
            core.append(float(done.stderr.split()[-2]))
            peak = max(peak, int(done.stderr.split()[-1]))
        result = json.loads(done.stdout)
    first, median = seconds[0], statistics.median(seconds[1:])
    print(
        f"{result['documents']:,} documents, {len(result['rules'])} rules: kept"
        f" {result['before']['documents']:,}, now {result['after']['estimate']['documents']:,}"
    )
    print(f"first call (reads the texts' lengths): {first:.2f} s, of a core {core[0]:.2f} s")
    print(
        f"median of {options.times}: {median:.2f} s ({min(seconds[1:]):.2f} to"
        f" {max(seconds[1:]):.2f}), of a core {statistics.median(core[1:]):.2f} s,"
        f" {peak / 2**20:.0f} MiB"
    )
    return int(not reached(median <= SECONDS * options.documents / 1_000_000))


if __name__ == "__main__":
    sys.exit(main())
