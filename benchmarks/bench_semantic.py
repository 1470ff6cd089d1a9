"""Semantic dedup on English documents of 3.4 kB: embeddings against scikit-learn's, then the rest.

    python benchmarks/bench_semantic.py [--documents N]

Embedding, over the same texts, in seconds of one core's time: ours are hashed counts, inverse
document frequencies, the SVD, its residual, and the file of vectors (128 + 64 dimensions).
scikit-learn's are HashingVectorizer (2^18 features, words and pairs of words), TfidfTransformer and
TruncatedSVD with 128 components and two iterations, fitted to all of them; ours is fitted to 4,096
of them. Then the time of clusters and pairs, and of the whole command with two workers.
scikit-learn is installed into .bench/sklearn. Exit status 1 under three times its speed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import (
    ROOT,
    last_json,
    peak_mib,
    reached,
    shifted,
    sized,
    watched,
    without,
)

TARGET = 3.0
PASSES, BATCH, DIMENSIONS, FEATURES = sized(3, 1), 1000, 128, 2**18
PEER = ROOT / ".bench" / "sklearn"


def peer_python() -> str:
    """The interpreter with scikit-learn; made when absent."""
    python = PEER / "bin" / "python"
    without("scikit-learn", python)
    if not (PEER / ".ready-1").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEER)], check=True)
        packages = ["scikit-learn==1.9.1", "pyarrow"]
        command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        subprocess.run([*command, *packages], check=True, stdout=sys.stderr)
        (PEER / ".ready-1").touch()
    return str(python)


def one_pass(table: Any, folder: Path) -> dict[str, float]:
    """Seconds of sketching, embedding and comparing, in a fresh folder."""
    import numpy as np
    import pyarrow as pa

    from curate.corpus.sketches import Sketches, SketchFile, view
    from curate.dedup import survivors
    from curate.documents.documents import documents
    from curate.lab.semantic import neighbours
    from curate.lab.semantic.semantic_duplicates import DedupSemantic
    from curate.run.worker.stage import sketch_rows
    from llmcurate.base.disk.database import scratch_database
    from llmcurate.base.disk.parquet_writer import writing

    step = DedupSemantic()
    begin = time.process_time()
    path = folder / "part-00000.sketch.parquet"
    with writing(path) as writer:
        for first in range(0, table.num_rows, BATCH):
            part = table.slice(first, BATCH)
            numbers = pa.array(np.arange(first, first + part.num_rows))
            columns = {"id": part["id"].to_pylist(), "text": part["text"].to_pylist()}
            docs = documents({**columns, "_n": numbers})
            writer.write(sketch_rows(step, docs.table, 0))
    sketched = time.process_time()
    with scratch_database(folder / "spill") as db:
        files = (SketchFile(0, path, 0),)
        view(db, files)
        sketches = Sketches(db, folder / "decisions.parquet", folder, files)
        neighbours.number_documents(db, survivors.preference(step.survivor))
        neighbours.matrix_of(step, sketches)
        embedded = time.process_time()
        neighbours.find(step, sketches)
        done = time.process_time()
    return {"sketch": sketched - begin, "embed": embedded - sketched, "compare": done - embedded}


def ours(path: str) -> None:
    """Prints the figures of our embeddings and comparisons."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    table = pq.read_table(path)
    passes = []
    for number in range(PASSES + 1):  # the first one compiles
        with tempfile.TemporaryDirectory() as folder:
            seconds = one_pass(table.slice(0, 2000) if number == 0 else table, Path(folder))
            passes.append(seconds)
    times = {k: [f[k] for f in passes[1:]] for k in passes[0]}
    whole = [f["sketch"] + f["embed"] for f in passes[1:]]
    print(json.dumps({"seconds": whole, **times, "peak_mib": peak_mib()}))


def theirs(path: str) -> None:
    """Prints the figures of scikit-learn's pipeline over the same texts."""
    import numpy as np
    import pyarrow.parquet as pq
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    texts = pq.read_table(path, columns=["text"])["text"].to_pylist()
    times = []
    for _ in range(PASSES):
        begin = time.process_time()
        pipeline = make_pipeline(
            HashingVectorizer(
                n_features=FEATURES,
                ngram_range=(1, 2),
                token_pattern=r"\w+",
                alternate_sign=False,
                norm=None,
                dtype=np.float32,
            ),
            TfidfTransformer(sublinear_tf=True),
            TruncatedSVD(DIMENSIONS, n_iter=2, random_state=1),
            Normalizer(copy=False),
        )
        pipeline.fit_transform(texts)
        times.append(time.process_time() - begin)
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    print(json.dumps({"seconds": times, "peak_mib": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--ours", help=argparse.SUPPRESS)
    parser.add_argument("--theirs", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours or options.theirs:
        return ours(options.ours) if options.ours else theirs(options.theirs)

    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = shifted(options.documents)
    count = len(texts)
    print(f"{count} English documents of {sum(map(len, texts)) / count:.0f} characters")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "in.parquet"))
        rows = {"id": [f"d{i}" for i in range(count)], "text": texts}
        pq.write_table(pa.table(rows), path, row_group_size=2000)
        rates = {}
        for name, python in (("ours", sys.executable), ("theirs", peer_python())):
            script = [python, __file__, f"--{name}", path]
            result = last_json(script)
            middle = statistics.median(result["seconds"])
            rates[name] = count / middle
            each = ", ".join(
                f"{part} {statistics.median(result[part]):.2f} s"
                for part in ("sketch", "embed", "compare")
                if part in result
            )
            print(
                f"  {name:<8}{rates[name]:8.0f} documents/s embedded ({middle:.2f} s),"
                f" peak {result['peak_mib']:.0f} MiB{'; ' + each if each else ''}"
            )
        ratio = rates["ours"] / rates["theirs"]
        print(f"  ratio {ratio:.1f}; target {TARGET:g}")
        out = Path(folder, "out")
        command = [sys.executable, "-m", "curate.cli.app", "dedup", path, "--method", "semantic"]
        done = watched([*command, "-o", str(out), "--workers", "2", "--quiet"], 0.1)
        if done.status:
            sys.exit(done.output)
        kept = json.loads((out / "run.json").read_text())["totals"]["kept"]
        print(
            f"  command {count / done.seconds:6.0f} documents/s: {count} in {done.seconds:.1f} s,"
            f" kept {kept}, peak of a process {done.peak_mib:.0f} MiB, of all"
            f" {done.total_mib:.0f} MiB"
        )
    sys.exit(0 if reached(ratio >= TARGET) else 1)


if __name__ == "__main__":
    main()
