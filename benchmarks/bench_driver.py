"""The driver alone, by number of partitions: CPU seconds and memory, with an engine whose tasks
are done at once.

    python benchmarks/bench_driver.py [--partitions N ...] [--linked N ...] [--ids N]

A partition is simulated: a 60th of an archive, with the record that one of FineWeb's recipe has.
Planning (the listing aside, which waits for a store), the stage's specification, its map with the
ledger, its totals, and the assembly with the manifests are the driver's own code. Each number of
partitions has a process of its own. Settling ids reads a file a partition: --linked measures it on
hard links to one file of ten documents, --ids on so many documents in forty partitions, by one
query and by tasks. Exit status 1 where a phase costs more than twice as much a
partition as with a tenth of them, or a commit more than 0.1 ms.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.shared_texts import reached  # noqa: E402
from curate.engines.base import OnDeath, R, T  # noqa: E402
from curate.formats.inputs import InputPlan, Partitions, Slice  # noqa: E402
from curate.formats.listing import InputFile  # noqa: E402
from curate.run.messages import Assembled, StageResult  # noqa: E402
from llmcurate.base.disk.process import peak_bytes  # noqa: E402
from llmcurate.base.messages import decode, encode  # noqa: E402

SLICES = 60  # partitions of an archive of 1 GB
COMMIT_MS = 0.1
RULES = [
    f"{step}.rule_{n}" for step in ("gopher_quality", "c4", "fineweb_quality") for n in range(6)
]
STEPS = ["url_filter", "extract", "language", "gopher_quality", "c4", "fineweb_quality"]


def result_of(part: int) -> StageResult:
    """What a worker says of a partition."""
    by_step = dict.fromkeys(STEPS, 1000003 + part)
    seconds = dict.fromkeys((*STEPS, "read", "write"), 0.1234 + part % 7)
    by_rule = dict.fromkeys(RULES, 3 + part % 5)
    values = {
        **{"read": 840, "kept": 208, "rejected": 632, "bytes_out": 900_000, "bytes_in": 80_000_000},
        **{
            "passed_over": 0,
            "bad_dates": 0,
            "digests_compared": 0,
            "skipped": {"request": 840, "metadata": 840},
        },
        **{"corrupt": 0, "corrupt_examples": [], "seconds": seconds},
        "cpu": {**seconds, "start": 0.4},
        **{"compiled": 0.0, "peak_bytes": 400_000_000 + part},
        "written": {"kept": 1_000_000, "keys": 1000, "rejected": 2_000_000, "ids": 20_000},
        **dict.fromkeys(("primary", "reasons"), by_rule),
        **{"cut": {"c4.no_end_mark": 900}, "cut_bytes": {"c4.no_end_mark": 100_000}},
        **dict.fromkeys(("text_in", "payload_in", "text_out", "worked"), by_step),
        **{"cut_examples": {}, "left_out": {}, "digests_differing": {}, "documents": [840]},
        "files": {key: [1000000, f"{part:032x}"] for key in ("kept", "keys", "rejected", "ids")},
        "sketch_files": {},
    }
    return StageResult(**values)


def assembled(part: int) -> Assembled:
    """What a worker says of a part of corpus and rejected."""
    record = {"name": f"part-{part:05d}.parquet", "sha256": f"{part:064x}"}
    kept = {"documents": 208, "text_bytes": 900_000, "ids": f"{part:032x}"}
    rejected = {**record, "documents": 632, "text_bytes": 2_000_000}
    return Assembled({**record, **kept}, rejected, time.time_ns(), time.time_ns(), 0.02)


class Instant:
    """An engine whose tasks are done when they are handed out."""

    cpu = 0.0
    spent = 0.0  # CPU seconds of what would be a worker's

    def __enter__(self) -> Instant:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def map(
        self,
        function: str,
        tasks: Iterable[T],
        result: type[R],
        on_death: OnDeath[T] | None = None,
    ) -> Iterator[tuple[T, R]]:
        """As Engine.map; task and result pass JSON, as they do on their way to a worker."""
        answer = assembled if function.endswith("assemble_partition") else result_of
        for task in tasks:
            sent = encode(task)
            began = time.process_time()
            done = encode(answer(decode(type(task), sent).part))
            self.spent += time.process_time() - began
            yield task, decode(result, done)


def planned(count: int) -> InputPlan:
    """A crawl's archives, cut."""
    name = "crawl-data/CC-MAIN-2026-10/segments/1700000000000.00/warc/CC-MAIN-{:05d}.warc.gz"
    files = tuple(
        InputFile(
            f"s3://bucket/{name.format(n)}", name.format(n), "archive", "gzip", 10**9, "e" * 32
        )
        for n in range(-(-count // SLICES))
    )
    cuts = ((Slice(p // SLICES, p % SLICES << 24, (p % SLICES + 1) << 24),) for p in range(count))
    return InputPlan(files, Partitions.of(cuts))


def measure(count: int) -> dict[str, Any]:
    """CPU seconds by phase, peak memory and bytes on disk of one run."""
    from unittest.mock import patch

    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.corpus.manifests import part_path
    from curate.documents.rejected import REASON_COLUMNS
    from curate.run import driver, records
    from curate.run.ledger import Ledger
    from curate.run.plan import plan_run, stage_folder
    from curate.run.records import Options
    from curate.run.worker.stage import load_stage
    from curate.steps.recipe import build, make_step

    phases: dict[str, float] = {}
    engine: Any = Instant()

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began, before = time.process_time(), engine.spent
        value = work()
        phases[name] = time.process_time() - began - (engine.spent - before)
        return value

    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        plan = timed(
            "plan",
            lambda: plan_run(
                build("driver", [make_step(n, {}) for n in ("extract", "c4")]), planned(count)
            ),
        )
        ledger = Ledger(out)
        run = driver._Run(plan, out, Options(quiet=True), ledger)
        (stage,) = plan.stages
        folder = stage_folder(out, stage.folder_name)
        folder.mkdir(parents=True)
        written = timed("specification", lambda: run.stages._write_spec(stage, folder))
        spec = written[0][0]
        flush, commits = ledger.flush, [0.0]

        def flushed() -> None:
            began = time.perf_counter()
            flush()
            commits[0] += time.perf_counter() - began

        with patch.object(ledger, "flush", flushed):
            timed("map", lambda: run.stages._map(stage, folder, written, engine, engine))
        from curate.run.records import sum_up

        results = (r for _, r in ledger.results(stage.key, StageResult))
        run.outcome.stages.append(timed("totals", lambda: sum_up(stage, plan.inputs, results)))
        columns = {name: pa.array([], pa.string()) for name in ("id", "text", *REASON_COLUMNS)}
        pq.write_table(pa.table(columns), part_path(folder, 0, "rejected"))
        with patch.object(run, "_first_rejected", lambda stages: ()):  # not part of the assembly
            timed("assembly", lambda: run._write_corpus(engine, engine))
        timed("kept ids", lambda: driver.manifests.kept_ids(out))
        timed("record", lambda: records.record(run.outcome))
        driver_peak = peak_bytes()
        sizes = {
            "ledger": ledger.path.stat().st_size,
            "plan": sum(p.stat().st_size for p in folder.glob("plan-*.arrow")),
            "manifests": sum((out / f"{n}.json").stat().st_size for n in ("corpus", "rejected")),
        }
        ledger.close()
        worker = subprocess.run(
            [sys.executable, __file__, "--worker", str(spec), str(count - 1)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert (
            load_stage(Path(spec)).plan.partitions[count - 1] == plan.inputs.partitions[count - 1]
        )
    return {
        "seconds": phases,
        "commit": commits[0],
        "peak": driver_peak,
        "sizes": sizes,
        "worker": json.loads(worker.stdout),
    }


def worker_memory(spec: str, part: int) -> dict[str, float]:
    """What loading the plan of a stage and one partition of it takes of a worker."""
    import psutil

    from curate.run.messages import Specification

    folder = Path(spec).parent
    specification = Specification.in_folder(folder)
    before, began = psutil.Process().memory_info().rss, time.perf_counter()
    plan = specification.inputs(folder)
    for s in plan.partitions[part]:
        assert plan.files[s.file].size
    seconds = time.perf_counter() - began
    return {"bytes": psutil.Process().memory_info().rss - before, "seconds": seconds}


def settle(count: int) -> dict[str, Any]:
    """CPU seconds and memory of settling ids over so many files."""
    import os

    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.corpus.manifests import part_path
    from curate.corpus.sketches import run_here
    from curate.formats.reading import ID_SCHEMA
    from curate.run.ids import assign_ids

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in range(count):
            path = part_path(folder, part, "ids")
            if part % 10_000 == 0:
                source = path
                columns = [range(10), [None] * 10, [0] * 10, range(10)]
                arrays = [pa.array(c, t) for c, t in zip(columns, ID_SCHEMA.types, strict=True)]
                pq.write_table(pa.table(arrays, schema=ID_SCHEMA), path)
            else:
                os.link(source, path)
        spent = [0.0]

        def run(function: str, tasks: list[T], result: type[R]) -> Iterator[tuple[T, R]]:
            began = time.process_time()
            yield from run_here(function, tasks, result)
            spent[0] += time.process_time() - began

        plan, began = planned(count), time.process_time()
        assign_ids(plan, folder, run=run)
        seconds = time.process_time() - began
        return {"driver": seconds - spent[0], "workers": spent[0], "peak": peak_bytes()}


def settle_documents(count: int) -> dict[str, Any]:
    """CPU microseconds a document of settling ids: by one query, and by tasks, apart."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.corpus.manifests import part_path
    from curate.corpus.sizes import Sizes
    from curate.corpus.sketches import run_here
    from curate.formats.reading import ID_SCHEMA
    from curate.run.ids import assign_ids

    parts, draw = 40, np.random.default_rng(1)
    each, spent = count // parts, [0.0]
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in range(parts):
            pairs = draw.integers(0, 2**62, (each, 2)).tolist()
            ids = [f"<urn:uuid:{x:016x}-{y:016x}>" for x, y in pairs]
            rows = pa.table([range(each), ids, [0] * each, range(each)], schema=ID_SCHEMA)
            pq.write_table(rows, part_path(folder, part, "ids"))

        def run(function: str, tasks: list[T], result: type[R]) -> Iterator[tuple[T, R]]:
            began = time.process_time()
            yield from run_here(function, tasks, result)
            spent[0] += time.process_time() - began

        for kind, size in (("query", 1 << 60), ("driver", 20 << 20)):
            began = time.process_time()
            assign_ids(planned(parts), folder, run=run, sizes=Sizes(id_bytes=size))
            figures[kind] = (time.process_time() - began - spent[0]) / count * 1e6
        figures["tasks"] = spent[0] / count * 1e6
    return figures


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, nargs="*", default=[10**4, 10**5, 10**6])
    parser.add_argument("--linked", type=int, nargs="*", default=[10**3, 10**4])
    parser.add_argument("--ids", type=int, default=2_000_000)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker_memory(options.worker[0], int(options.worker[1]))))
        return
    if options.one:
        work = {"settle": settle, "ids": settle_documents, "run": measure}[options.one[0]]
        print(json.dumps(work(int(options.one[1]))))
        return

    def apart(kind: str, count: int) -> dict[str, Any]:
        command = [sys.executable, __file__, "--one", kind, str(count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return dict(json.loads(done.stdout.splitlines()[-1]))

    failed = False
    earlier: dict[str, float] = {}
    for count in options.partitions:
        r = apart("run", count)
        total = sum(r["seconds"].values())
        peak = r["peak"] / 2**20
        print(f"{count:,} partitions: driver {total:.1f} s of CPU, {peak:,.0f} MiB at most")
        pace = {k: v / count * 1e6 for k, v in r["seconds"].items()}
        print("  " + ", ".join(f"{k} {v:.1f}" for k, v in pace.items()) + " microseconds each")
        commit = r["commit"] / count * 1e3
        print(f"  commits {commit:.4f} ms each; " + ", ".join(
            f"{k} {v / count:.0f} B" for k, v in r["sizes"].items()) + " each")  # fmt: skip
        worker = r["worker"]
        print(f"  a worker's plan {worker['bytes'] / 2**20:.1f} MiB, {worker['seconds']:.3f} s")
        slower = [k for k, v in pace.items() if k in earlier and v > 2 * earlier[k] and v > 1]
        failed |= bool(slower) or (commit > COMMIT_MS and count >= 10**5)
        earlier = pace
    for count in options.linked:
        r = apart("settle", count)
        own, tasks = (r[k] / count * 1e6 for k in ("driver", "workers"))
        peak = r["peak"] / 2**20
        print(
            f"settling ids of {count:,} files of 10: {own:,.0f} microseconds each in one process,"
        )
        print(f"  {tasks:,.0f} in workers; {peak:,.0f} MiB at most")
    if options.ids:
        r = apart("ids", options.ids)
        print(
            f"settling ids of {options.ids:,} documents: {r['query']:.2f} microseconds each by one"
        )
        print(f"  query; by tasks {r['driver']:.3f} in one process, {r['tasks']:.2f} in workers")
    sys.exit(not reached(not failed))


if __name__ == "__main__":
    main()
