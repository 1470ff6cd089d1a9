"""The band join of MinHash, by our shuffle and by those of Ray, Ray Data, Daft and DuckDB.

    python benchmarks/bench_shuffle.py [--rows N] [--nodes N] [--only NAME ..] [--folder DIR]

The input is that of dedup_minhash: files of documents with BANDS keys of 64 bits each, a tenth of
which another document has, too; --rows counts (key, document) pairs. The result is every key that
more than one document has, with these documents. Each way runs in a process of its own. Printed are
seconds without the start of a cluster, bytes that its processes wrote to files, pipes and sockets,
the most that lay in shared memory (`stores`), the peak of what all processes together had for
themselves, and the lines of code that the way takes beyond its library. --nodes N makes a Ray
cluster of N nodes of one CPU on this machine, with an object store each, else two workers on one
node; --lose S kills one of them after S seconds, the start of what connects to it included. Exit
status 1 where two ways have different results.

`daft` is found by DAFT=PYTHON, the path of an interpreter that has it, else left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

BANDS = 14
FILE_DOCUMENTS = 100_000
PARTITIONS = 64  # of the shuffles that are told how many


def write(rows: int, folder: Path) -> None:
    """Sketch files: id, n, and `bands`, BANDS keys of 64 bits as bytes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(7)
    documents = rows // BANDS
    for part in range(-(-documents // FILE_DOCUMENTS)):
        first = part * FILE_DOCUMENTS
        count = min(FILE_DOCUMENTS, documents - first)
        keys = draw.integers(0, 2**64, (count, BANDS), np.uint64)
        # A tenth of the keys are those of a family of documents, three on average.
        shared = draw.random((count, BANDS)) < 0.1
        family = draw.integers(0, max(1, rows // 30), int(shared.sum()), np.uint64)
        keys[shared] = family * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
        data = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(8 * BANDS), count, [None, pa.py_buffer(keys.tobytes())]
        )
        number = np.arange(first, first + count)
        ids = pa.array([f"d{n}" for n in number])
        table = pa.table({"id": ids, "n": pa.array(number - first), "bands": data})
        pq.write_table(table, folder / f"part-{part:05d}.parquet", compression="zstd")


def pairs_of(path: str) -> tuple[Any, Any]:
    """(keys uint64, documents int64) of a sketch file."""
    import numpy as np
    import pyarrow.parquet as pq

    column = pq.read_table(path, columns=["bands"])["bands"].combine_chunks()
    keys = np.frombuffer(column.buffers()[1], np.uint64, len(column) * BANDS)
    first = int(Path(path).stem.rpartition("-")[2]) * FILE_DOCUMENTS
    return keys, np.repeat(np.arange(first, first + len(column)), BANDS)


def repeated(keys: Any, documents: Any) -> tuple[Any, Any]:
    """Of pairs in any order those whose key stands more than once, by (key, document)."""
    import numpy as np

    order = np.lexsort((documents, keys))
    keys, documents = keys[order], documents[order]
    same = keys[1:] == keys[:-1]
    more = np.zeros(len(keys), np.bool_)
    more[1:] |= same
    more[:-1] |= same
    return keys[more], documents[more]


def digest(documents: Any) -> int:
    """Of the documents of all buckets, whatever the order of buckets: the sum over buckets of a
    hash of what is in them is that of hashes of neighbours."""
    import numpy as np

    if not len(documents[0]):
        return 0
    keys, members = documents
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    value = (members.astype(np.uint64) + np.uint64(1)) * np.uint64(0xFF51AFD7ED558CCD)
    value ^= value >> np.uint64(33)
    sums = np.add.reduceat(value, first) * np.uint64(0xC4CEB9FE1A85EC53)
    sums ^= sums >> np.uint64(29)
    return int(np.add.reduce(sums))


# ------------------------------------------------------------------------------- the ways


def ours(folder: Path, work: Path, run: Any) -> int:
    """The phases of dedup_minhash up to the buckets."""
    import numpy as np

    from curate.corpus.shuffle.buckets import bucket_files, chunks, find_buckets
    from curate.corpus.shuffle.partitions import partition_keys
    from curate.corpus.shuffle.tasks import groups
    from curate.corpus.sizes import Sizes
    from curate.corpus.sketches import Sketches, SketchFile

    paths = sorted(folder.glob("part-*"))
    files = tuple(SketchFile(number, path, number) for number, path in enumerate(paths))
    sketches = Sketches(None, work / "none", work, files, run=run, sizes=Sizes())
    keys, found = work / "keys", work / "buckets"
    keys.mkdir()
    found.mkdir()
    cut = groups(sketches, sketches.sizes.task_documents)
    facts = partition_keys(sketches, keys, cut, "minhash", "bands", BANDS)
    done = find_buckets(sketches, found, keys, facts)
    total = np.uint64(0)
    for members, sizes in chunks(bucket_files(found, done["pieces"]), 1_000_000):
        number = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort((members, number))
        with np.errstate(over="ignore"):
            total += np.uint64(digest((number[order], members[order])))
    return int(total)


def local(folder: Path, work: Path, nodes: int) -> tuple[float, int]:
    """Our shuffle with two worker processes."""
    from curate.engines.local import LocalEngine

    with LocalEngine(2) as engine:
        list(engine.map("benchmarks.bench_shuffle:nothing", [{}] * 2, dict))
        began = time.perf_counter()
        result = ours(folder, work, engine.map)
        return time.perf_counter() - began, result


def ray_files(folder: Path, work: Path, nodes: int) -> tuple[float, int]:
    """Our shuffle on Ray, through files that all see."""
    from curate.engines.ray import RayEngine

    inside = work / "out"
    inside.mkdir()
    with RayEngine(max(2, nodes), None, "auto" if nodes else None) as engine:
        list(engine.map("benchmarks.bench_shuffle:nothing", [{}] * max(2, nodes), dict))
        began = time.perf_counter()
        result = ours(folder, inside, engine.map)
        return time.perf_counter() - began, result


def nothing(task: dict[str, Any]) -> dict[str, Any]:
    """A task that loads what tasks load."""
    import curate.corpus.shuffle.buckets
    import curate.corpus.shuffle.partitions  # noqa: F401

    return {}


def nothing_files(task: dict[str, Any]) -> dict[str, Any]:
    """What `nothing` reads and writes."""
    return {"reads": [], "writes": []}


def ray_tasks(folder: Path, work: Path, nodes: int) -> tuple[float, int]:
    """A shuffle of Ray's own tasks: what maps return lies in the object store."""
    import numpy as np
    import ray

    start_ray(nodes)

    @ray.remote(num_returns=PARTITIONS)
    def split(path: str) -> list[Any]:
        keys, documents = pairs_of(path)
        to = (keys >> np.uint64(64 - PARTITIONS.bit_length() + 1)).astype(np.int64)
        order = np.argsort(to, kind="stable")
        ends = np.searchsorted(to[order], np.arange(1, PARTITIONS))
        keys, documents = np.split(keys[order], ends), np.split(documents[order], ends)
        return list(zip(keys, documents, strict=True))

    @ray.remote
    def join(*parts: Any) -> int:
        keys = np.concatenate([k for k, _ in parts])
        documents = np.concatenate([d for _, d in parts])
        return digest(repeated(keys, documents))

    ray.get([join.remote((np.empty(0, np.uint64), np.empty(0, np.int64))) for _ in range(2)])
    began = time.perf_counter()
    parts = [split.remote(str(path)) for path in sorted(folder.glob("part-*"))]
    total = sum(ray.get([join.remote(*each) for each in zip(*parts, strict=True)]))
    return time.perf_counter() - began, total % 2**64


def ray_data(folder: Path, work: Path, nodes: int) -> tuple[float, int]:
    """Ray Data: sort by key, then look for neighbours in each block."""
    import numpy as np
    import pyarrow as pa
    import ray

    start_ray(nodes)
    ray.data.DataContext.get_current().enable_progress_bars = False
    began = time.perf_counter()

    def explode(batch: dict[str, Any]) -> pa.Table:
        keys, documents = pairs_of(batch["path"][0])
        return pa.table({"key": keys, "document": documents})

    def buckets(batch: dict[str, Any]) -> dict[str, Any]:
        found = digest(repeated(batch["key"], batch["document"]))
        return {"digest": np.array([found], np.uint64)}

    paths = [{"path": str(path)} for path in sorted(folder.glob("part-*"))]
    data = ray.data.from_items(paths, override_num_blocks=len(paths))
    pairs = data.map_batches(explode, batch_size=1)
    done = pairs.sort("key").map_batches(buckets, batch_size=None).take_all()
    total = sum(int(row["digest"]) for row in done) % 2**64
    return time.perf_counter() - began, total


def duckdb_query(folder: Path, work: Path, nodes: int) -> tuple[float, int]:
    """One query of DuckDB over pairs that lie in parquet files; writing these counts."""
    import duckdb
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    began = time.perf_counter()
    for path in sorted(folder.glob("part-*")):
        keys, documents = pairs_of(str(path))
        pq.write_table(pa.table({"key": keys, "document": documents}), work / path.name)
    db = duckdb.connect(str(work / "spill.db"))
    db.execute("SET threads = 2; SET memory_limit = '4GB'")
    found = db.execute(
        f"SELECT key, document FROM '{work}/part-*.parquet' QUALIFY count(*) OVER (PARTITION BY"
        " key) > 1 ORDER BY key, document"
    ).to_arrow_table()
    columns = [np.asarray(found[name].combine_chunks()) for name in ("key", "document")]
    return time.perf_counter() - began, digest((columns[0], columns[1]))


def daft_query(folder: Path, work: Path, nodes: int) -> tuple[float, int]:
    """Daft's native runner: group by key over pairs that lie in parquet files."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    began = time.perf_counter()
    for path in sorted(folder.glob("part-*")):
        keys, documents = pairs_of(str(path))
        pq.write_table(pa.table({"key": keys, "document": documents}), work / path.name)
    import daft

    data = daft.read_parquet(f"{work}/part-*.parquet")
    found = (
        data.groupby("key")
        .agg(daft.col("document").list_agg())
        .where(daft.col("document").list_count() > 1)
        .explode("document")
        .sort(["key", "document"])
        .to_arrow()
    )
    columns = [np.asarray(found[name].combine_chunks()) for name in ("key", "document")]
    return time.perf_counter() - began, digest((columns[0], columns[1]))


WAYS: dict[str, Callable[[Path, Path, int], tuple[float, int]]] = {
    "ours, local": local,
    "ours, ray, shared folder": ray_files,
    "ray tasks": ray_tasks,
    "ray data": ray_data,
    "duckdb": duckdb_query,
    "daft": daft_query,
}


# -------------------------------------------------------------------------------- figures


def start_ray(nodes: int) -> None:
    """Connects to the cluster of `nodes`, or starts one of two CPUs."""
    import ray

    if not ray.is_initialized():
        where: dict[str, Any] = {"address": "auto"} if nodes else {"num_cpus": 2}
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        store = {} if nodes else {"object_store_memory": STORE}
        ray.init(**where, **quiet, **store, runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}})


STORE = 2 << 30  # bytes of each object store


@contextmanager
def nodes_of(count: int) -> Iterator[Callable[[], None]]:
    """A Ray cluster of so many nodes on this machine, to which `auto` connects; 0: none. Given is
    what loses one of them."""
    if not count:
        yield lambda: None
        return
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    node = None
    for number in range(count):
        node = cluster.add_node(num_cpus=1, object_store_memory=STORE, include_dashboard=False)
        if number == 0:
            os.environ["RAY_ADDRESS"] = cluster.address
    cluster.wait_for_nodes()
    try:
        yield lambda: cluster.remove_node(node, allow_graceful=False)
    finally:
        ray.shutdown()
        cluster.shutdown()


class Watch:
    """Bytes written, and the peak of memory, of this process and all that it has started."""

    def __init__(self) -> None:
        import psutil

        self.peak = self.store = 0
        self._shared = psutil.virtual_memory().shared
        self._written: dict[tuple[int, float], int] = {}
        self._me = psutil.Process()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        import psutil

        while not self._over.wait(0.5):
            memory, store = 0, psutil.virtual_memory().shared - self._shared
            for process in [self._me, *self._me.children(recursive=True)]:
                try:
                    facts = process.memory_info()
                    memory += facts.rss - facts.shared
                    key = process.pid, process.create_time()
                    self._written[key] = process.io_counters().write_chars
                except (psutil.Error, OSError):
                    continue
            self.peak = max(self.peak, memory)
            self.store = max(self.store, store)

    def end(self) -> dict[str, int]:
        """The figures."""
        self._over.set()
        self._thread.join()
        return {"peak": self.peak, "store": self.store, "written": sum(self._written.values())}


def measure(name: str, folder: Path, nodes: int, lose: float) -> None:
    """Prints the figures of one way as JSON."""
    import inspect

    way = WAYS[name]
    with tempfile.TemporaryDirectory(dir=folder.parent) as work, nodes_of(nodes) as lose_one:
        watch = Watch()
        if lose:
            threading.Timer(lose, lose_one).start()
        seconds, result = way(folder, Path(work), nodes)
        figures = {**watch.end(), "seconds": seconds, "digest": result}
    figures["lines"] = len(inspect.getsource(way).splitlines())
    print(json.dumps(figures))


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--lose", type=float, default=0.0)
    parser.add_argument("--only", nargs="*", default=list(WAYS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.folder, options.nodes, options.lose)
        return
    os.environ["PYTHONPATH"] = str(ROOT)
    results = set()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name) / "sketches"
        folder.mkdir()
        write(options.rows, folder)
        print(f"{options.rows:,} pairs, {options.nodes or 'no'} nodes")
        for way in options.only:
            python = os.environ.get("DAFT") if way == "daft" else sys.executable
            if python is None:
                continue
            command = [python, __file__, "--measure", way, "--folder", str(folder)]
            command += ["--nodes", str(options.nodes), "--lose", str(options.lose)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"  {way:<26} failed: {done.stderr.strip().splitlines()[-1:]}")
                continue
            figures = json.loads(done.stdout.strip().splitlines()[-1])
            results.add(figures["digest"])
            print(
                f"  {way:<26}{figures['seconds']:8.1f} s{figures['written'] / 1e9:8.2f} GB written"
                f"{figures['store'] / 1e9:8.2f} GB in stores{figures['peak'] / 1e9:8.2f} GB peak"
                f"{figures['lines']:5d} lines",
                flush=True,
            )
    if len(results) > 1:
        sys.exit(f"different results: {results}")


if __name__ == "__main__":
    main()
