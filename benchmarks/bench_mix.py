"""Mixing two corpora, shuffled, out of core: MB of text a second of one core, and peak memory.

    python benchmarks/bench_mix.py [--mib 1024] [--profile]

English pieces of 3.4 kB as two corpora in parquet (80 % and 20 %), mixed half and half, so that the
smaller is taken 2.5 times: `llmcurate mix` as a process, with one worker, from start to end (one
reading, the shuffle on disk, compressed parts, hashes, overlap, report). Beside it the floor, what
pyarrow alone needs to read the mix once and to write it again as it is, in the same row groups and
codec, into the page cache; and DuckDB, one thread and 2 GB (1 GB is too little for it), which
orders the same documents once by a hash of seed and id: without quotas, epochs, hashes or manifest.
MB are of the mix written, per second of CPU of the process. Medians of three, the three after one
another in each pass, since other work on the machine slows all of them. What the command takes for
ten documents is told apart, for it is the same for any corpus. Exit status 1 under 150 MB/s of the
whole command, starting up included.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import reached, shifted, sized

TARGET, PASSES = 150.0, sized(3, 1)
DUCKDB = """
import sys, duckdb
target, spill, *folders = sys.argv[1:]
db = duckdb.connect()
db.execute("SET memory_limit='2GB'; SET threads=1; SET preserve_insertion_order=false")
db.execute(f"SET temp_directory='{spill}'")
files = "[" + ", ".join(f"'{f}/corpus/*.parquet'" for f in folders) + "]"
db.execute(f"COPY (SELECT * FROM read_parquet({files}) ORDER BY hash(id || '0')) TO '{target}'"
           " (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)")
"""
FLOOR = """
import sys, glob, pyarrow.parquet as pq
target, folder = sys.argv[1:]
for path in sorted(glob.glob(f"{folder}/*.parquet")):
    file = pq.ParquetFile(path, pre_buffer=False)
    names = [n for n in file.schema_arrow.names if n not in ("id", "text", "url")]
    with pq.ParquetWriter(target, file.schema_arrow, compression="zstd", compression_level=1,
                          use_dictionary=names, write_statistics=names) as writer:
        for group in range(file.num_row_groups):
            writer.write_table(file.read_row_group(group, use_threads=False))
"""


def build(folder: Path, texts: list[str], first: int, size: int) -> int:
    """A corpus of about that many bytes as llmcurate writes it; returns its bytes of text."""
    import pyarrow as pa

    from curate.corpus.manifests import file_record, write_manifest
    from llmcurate.base.disk.parquet_writer import writing

    draw = random.Random(first)
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    written = part = 0
    files = []
    while written < size:
        target = corpus / f"part-{part:05d}.parquet"
        of_part = 0
        with writing(target) as writer:
            while of_part < 32 << 20:
                rows = [draw.choice(texts) for _ in range(1000)]
                # No two texts are equal, as in a corpus without copies.
                rows = [f"{first + part} {of_part} {i} {text}" for i, text in enumerate(rows)]
                ids = [f"{folder.name}-{part}-{of_part}-{i}" for i in range(len(rows))]
                table = {
                    "id": ids,
                    "text": pa.array(rows, pa.large_string()),
                    "url": [f"https://host.test/{i}" for i in ids],
                    "source": ["made"] * len(rows),
                    "lang": ["en"] * len(rows),
                }
                writer.write(pa.table(table))
                of_part += sum(len(r.encode()) for r in rows)
        files.append({"name": target.name, "text_bytes": of_part, **file_record(target)})
        written, part = written + of_part, part + 1
    write_manifest(corpus, files, "made")
    return written


def timed(command: list[str]) -> tuple[float, float, float]:
    """(CPU seconds, wall seconds, peak MiB) of a process that must succeed."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        if status:
            output.seek(0)
            sys.exit(f"{' '.join(command)[:200]} failed:\n{output.read()[-2000:]}")
    return used.ru_utime + used.ru_stime, seconds, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="text of both corpora")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    asked = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or every start compiles all modules
    texts = shifted(20_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = asked.mib << 20
        there = build(folder / "web", texts, 0, size * 4 // 5)
        there += build(folder / "wiki", texts, 10**6, size // 5)
        web, wiki, out = folder / "web", folder / "wiki", folder / "out"
        command = [sys.executable, "-m", "curate.cli.app", "mix", str(web), str(wiki)]
        command += ["--weights", "web=50,wiki=50", "--unit", "bytes", "--workers", "1", "-q"]
        command += ["-o", str(out)]
        if asked.profile:
            command[1:1] = ["-m", "cProfile", "-o", "mix.prof"]
        if asked.profile:
            timed(command)
            print("mix.prof: read it with `python -m pstats mix.prof`")
            return
        (folder / "few.jsonl").write_text("".join(f'{{"text": "Text {t}"}}\n' for t in range(10)))
        few = [sys.executable, "-m", "curate.cli.app", "mix", str(folder / "few.jsonl"), "-q", "-o"]
        rates, walls, peaks, floors, theirs, memory, starts, beyond = ([] for _ in range(8))
        for number in range(PASSES):
            starts.append(timed([*few, str(folder / f"few-{number}")])[0])
            subprocess.run(["rm", "-rf", str(out)], check=True)
            cpu, wall, peak = timed(command)
            mixed = json.loads((out / "corpus.json").read_text())["text_bytes"]
            rates.append(mixed / 1e6 / cpu)
            beyond.append(mixed / 1e6 / (cpu - starts[-1]))
            walls.append(mixed / 1e6 / wall)
            peaks.append(peak)
            target = str(folder / "other.parquet")
            cpu, _, _ = timed([sys.executable, "-c", FLOOR, target, str(out / "corpus")])
            floors.append(mixed / 1e6 / cpu)
            arguments = [target, str(folder / "spill"), str(web), str(wiki)]
            cpu, _, peak = timed([sys.executable, "-c", DUCKDB, *arguments])
            theirs.append(there / 1e6 / cpu)
            memory.append(peak)
    rate = statistics.median(rates)
    print(f"{there / 1e6:,.0f} MB of text in two corpora; a mix of {mixed / 1e6:,.0f} MB")
    print(
        f"llmcurate mix: {rate:.0f} MB/s of CPU ({min(rates):.0f} to {max(rates):.0f}),"
        f" {statistics.median(walls):.0f} MB/s of wall time, peak {max(peaks):,.0f} MiB"
    )
    print(
        f"starting up: {statistics.median(starts):.2f} s of CPU; without it"
        f" {statistics.median(beyond):.0f} MB/s ({min(beyond):.0f} to {max(beyond):.0f})"
    )
    floor = statistics.median(floors)
    print(
        f"read and written once by pyarrow: {floor:.0f} MB/s of CPU ({min(floors):.0f} to"
        f" {max(floors):.0f}); the mix reaches {100 * rate / floor:.0f} % of it"
    )
    peer = statistics.median(theirs)
    print(
        f"DuckDB ORDER BY hash: {peer:.0f} MB/s of CPU ({min(theirs):.0f} to {max(theirs):.0f}),"
        f" peak {max(memory):,.0f} MiB"
    )
    print(f"ratio {rate / peer:.2f}; target {TARGET:.0f} MB/s")
    sys.exit(not reached(rate >= TARGET))


if __name__ == "__main__":
    main()
