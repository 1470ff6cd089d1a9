"""The report and the statistics of 1,000,000 documents: seconds and memory.

    python benchmarks/bench_report.py [--documents N]

By tasks, of 1 MB of files each, means in this process too: what is theirs is counted apart. The
documents are made up: 1,000 characters each, 30 measures with a rule on each that marks three
percent; some 37 % are kept, and a tenth is in clusters of copies. Figures and page are made by one
thread, by two and by tasks, as at the end of a run, which must find the same figures, and the
statistics of the kept ones. Exit status 1 beyond 30 s or 1 GiB for the report, or 60 s or 1 GiB
for the statistics of a million.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import reached

BATCH, PART, RULES = 10_000, 50_000, 30
REPORT_SECONDS, STATS_SECONDS, MOST_BYTES = 30.0, 60.0, 1 << 30
CHILD = """
import json, resource, sys, time
from pathlib import Path
out, kind = Path(sys.argv[1]), sys.argv[2]
began = time.perf_counter()
dump = ""
if kind.startswith("report"):
    from curate.inspect.report.page import gather
    from curate.inspect.report.page import RunPage
    from llmcurate.base.messages import json_values
    record = json.loads((out / "run.json").read_text())
    tasks = {"seconds": 0.0, "count": 1}
    if "tasks" in kind:
        from curate.corpus.sizes import Sizes
        from curate.corpus.sketches import run_here
        def run(function, each, result):
            before = time.process_time()
            yield from run_here(function, each, result)
            tasks["seconds"] += time.process_time() - before
            tasks["count"] = max(tasks["count"], len(each))
        found = gather(out, run=run, sizes=Sizes(report_bytes=10**6))
    else:
        found = gather(out, threads=2 if "two" in kind else 1)
    dump = json.dumps(json_values(found))
    size = len(RunPage(record, found).render())
    cpu = time.process_time()
else:
    from curate.inspect.stats import gather
    size = gather([str(out / "corpus")]).documents
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
result = {"seconds": seconds, "peak": peak, "size": size, "dump": dump}
if "tasks" in kind:
    result |= {"tasks": tasks, "driver": cpu - tasks["seconds"]}
print(json.dumps(result))
"""


def make(out: Path, documents_: int) -> None:
    """Writes OUT/corpus, OUT/rejected, OUT/decisions.parquet and a run.json."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.documents.documents import NUMBER, documents
    from llmcurate.base.disk.parquet_writer import TableWriter
    from llmcurate.base.disk.process import host

    draw = np.random.default_rng(1)
    text = ("The river runs past the old mill and nobody works there any more. " * 16)[:990]
    writers: list[TableWriter] = []
    for start in range(0, documents_, BATCH):
        if start % PART == 0:
            for writer in writers:
                writer.close()
            name = f"part-{start // PART:05d}.parquet"
            writers = [TableWriter(out / kind / name) for kind in ("corpus", "rejected")]
        ids = [f"document-{i}" for i in range(start, min(start + BATCH, documents_))]
        docs = documents({"id": ids, "text": [f"{text} {i}" for i in ids]}).within("judge")
        for rule in range(RULES):
            values = draw.beta(2, 5, len(ids))
            docs = docs.annotate(f"rule_{rule:02d}", values)
            docs = docs.drop(values > 0.62, f"rule_{rule:02d}", values, 0.62)
        for writer, table in zip(writers, docs.split(), strict=True):
            writer.write(table.drop_columns([NUMBER]))
    for writer in writers:
        writer.close()
    number = np.arange(documents_ // 10)
    kept = [f"document-{n - n % 4}" for n in number.tolist()]
    decisions = {
        "id": [f"document-{n}" for n in number.tolist()],
        "cluster": number // 4,
        "kept_id": kept,
        "partner_id": [None if n % 4 == 0 else k for n, k in enumerate(kept)],
        "similarity": [None if n % 4 == 0 else 0.7 + (n % 97) / 400 for n in number.tolist()],
        "method": ["minhash"] * len(number),
        "span_start": pa.nulls(len(number), pa.int64()),
        "span_end": pa.nulls(len(number), pa.int64()),
    }
    pq.write_table(pa.table(decisions), out / "decisions.parquet")
    totals = {"read": documents_, "kept": 0, "rejected": 0, "skipped": 0, "corrupt": 0}
    totals |= {"skipped_by_type": {}, "bytes_in": 0, "bytes_out": 0, "seconds": 0.0, "by_rule": {}}
    record = {
        "recipe": "bench",
        "description": "",
        "plan": "",
        "versions": {"llmcurate": ""},
        "inputs": [],
    }
    record |= {"notices": [], "totals": totals, "stages": [], "products": []}
    record |= {"host": vars(host()), "started": "2026-01-01T00:00:00Z", "command": "bench"}
    (out / "run.json").write_text(json.dumps(record))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    count = parser.parse_args().documents
    late = False
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), count)
        dumps = set()
        kinds = {
            "report": REPORT_SECONDS,
            "report by two threads": REPORT_SECONDS,
            "report by tasks": 2 * REPORT_SECONDS,
            "stats": STATS_SECONDS,
        }
        for kind, most in kinds.items():
            command = [sys.executable, "-c", CHILD, folder, kind]
            root = Path(__file__).resolve().parents[1]
            done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root)
            if done.returncode:
                sys.exit(done.stderr)
            result = json.loads(done.stdout)
            print(
                f"{kind} of {count:,} documents: {result['seconds']:.1f} s,"
                f" {result['peak'] / 2**20:.0f} MiB at most"
            )
            if "tasks" in result:
                own, theirs = (
                    s / count * 1e6 for s in (result["driver"], result["tasks"]["seconds"])
                )
                print(
                    f"  {own:.3f} microseconds of CPU a document in the process that drives,"
                    f" {theirs:.2f} in {result['tasks']['count']} groups of files"
                )
            dumps.add(result["dump"])
            late |= result["seconds"] > most or result["peak"] > MOST_BYTES
        if len(dumps) != 2:  # the report's, and none of statistics
            sys.exit("two threads or tasks count other figures than one")
    return int(not reached(not late))


if __name__ == "__main__":
    sys.exit(main())
