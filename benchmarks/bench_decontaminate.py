"""Decontamination of English documents of 3.4 kB: ours against DataTrove's, and the whole command.

    python benchmarks/bench_decontaminate.py [--documents N]

1,500 test items of 300 characters; every 50th document holds one. Ours: finding all windows, word
table included, in one process on one core, in all modes. DataTrove's NGramsDecontFilter gets 500 of
the same documents, evenly drawn, the same items and n = 13; its indexer needs lighteval, so its
hashes are made here with its own functions. The command goes from parquet to parquet with two
workers. Exit status 1 under 20 MB/s a core, or where ours misses a document that DataTrove finds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import (
    last_json,
    peak_mib,
    peer_python,
    pieces,
    reached,
    sized,
    watched,
)

TARGET = 20.0  # MB/s a core
ITEMS, ITEM_CHARS, EVERY = sized(1500, 20), 300, 50
BATCH, PASSES, PEER_DOCUMENTS = 1000, sized(5, 1), sized(500, 50)
MODES = ("13-gram", "50-char", "overlap")


def write(folder: Path, count: int) -> int:
    """The documents as parquet and, for the peer, a sample as JSON lines; items as JSON lines.
    Returns the bytes of the documents."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    passages = pieces()
    texts, rest = passages[:-ITEMS][:count], passages[-ITEMS:]
    items = [{"id": f"i{k}", "text": text[:ITEM_CHARS]} for k, text in enumerate(rest)]
    rows = [
        {
            "id": f"d{k}",
            "text": f"{text} {items[k // EVERY % ITEMS]['text']}" if k % EVERY == 0 else text,
        }
        for k, text in enumerate(texts)
    ]
    table = {name: [row[name] for row in rows] for name in ("id", "text")}
    pq.write_table(pa.table(table), folder / "in.parquet", row_group_size=2000)
    sample = rows[:: max(1, len(rows) // PEER_DOCUMENTS)]
    for name, lines in (("sample", sample), ("items", items)):
        data = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(data, encoding="utf-8")
    return sum(len(row["text"].encode()) for row in rows)


def ours(folder: str, mode: str) -> None:
    """Prints our figures in one mode, and which documents of the peer's sample hold an item."""
    import pyarrow.parquet as pq

    from benchmarks.shared_texts import in_batches
    from curate.dedup.decontaminate.decontamination import Decontaminate
    from curate.documents.documents import Documents, documents

    begin = time.perf_counter()
    step = Decontaminate(evals=(f"{folder}/items.jsonl",), mode=mode)
    step.open()
    opened = time.perf_counter() - begin
    tables = pq.read_table(f"{folder}/in.parquet").to_batches(max_chunksize=BATCH)
    columns = [{n: b[n].to_pylist() for n in ("id", "text")} for b in tables]
    step.sketch(documents(columns[0]))
    times = []
    for _ in range(PASSES):
        fresh: list[Documents] = [documents(c) for c in columns]
        begin = time.perf_counter()
        for docs in fresh:
            step.sketch(docs)
        times.append(time.perf_counter() - begin)
    hits = []
    for docs in in_batches(f"{folder}/sample.jsonl", BATCH):
        hits += [len(grams) > 0 for grams in step.sketch(docs)["gram"].to_pylist()]
    windows = len(step.windows().gram)
    result = {"seconds": times, "open": opened, "windows": windows, "hits": hits}
    print(json.dumps({**result, "peak_mib": peak_mib()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=6000)
    parser.add_argument("--ours", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        return ours(*options.ours)
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write(folder, options.documents)
        print(f"{options.documents} English documents, {size / 1e6:.1f} MB; {ITEMS} items")
        rates, hits = {}, {}
        for mode in MODES:
            run = last_json([sys.executable, __file__, "--ours", name, mode])
            rates[mode] = size / statistics.median(run["seconds"]) / 1e6
            best = size / min(run["seconds"]) / 1e6
            good &= rates[mode] >= TARGET
            hits[mode] = run["hits"]
            print(
                f"  {mode:<8}{rates[mode]:7.1f} MB/s a core (best pass {best:.1f}),"
                f" {run['windows']} windows made in {run['open']:.2f} s,"
                f" peak {run['peak_mib']:.0f} MiB"
            )
        peer = Path(__file__).with_name("peers") / "datatrove_decontaminate.py"
        theirs = last_json([peer_python(), str(peer), name])
        rate = theirs["bytes"] / statistics.median(theirs["seconds"]) / 1e6
        missed = sum(t and not o for o, t in zip(hits["13-gram"], theirs["hits"], strict=True))
        more = sum(o and not t for o, t in zip(hits["13-gram"], theirs["hits"], strict=True))
        good &= missed == 0
        print(
            f"  DataTrove {rate:5.2f} MB/s on {len(theirs['hits'])} of them, peak"
            f" {theirs['peak_mib']:.0f} MiB; ratio {rates['13-gram'] / rate:.0f}; it finds"
            f" {sum(theirs['hits'])} documents, ours finds {more} more and misses {missed}"
        )
        for action in ("drop", "cut"):
            command = [
                sys.executable,
                "-m",
                "curate.cli.app",
                "decontaminate",
                f"{name}/in.parquet",
            ]
            command += ["--evals", f"{name}/items.jsonl", "--action", action, "--workers", "2"]
            done = watched([*command, "-o", f"{name}/{action}", "--quiet"])
            if done.status:
                sys.exit(done.output)
            totals = json.loads((folder / action / "run.json").read_text())["totals"]
            print(
                f"  command, {action}: {size / done.seconds / 1e6:.1f} MB/s, {done.seconds:.1f} s,"
                f" kept {totals['kept']}; peak of a process {done.peak_mib:.0f} MiB,"
                f" of all {done.total_mib:.0f} MiB"
            )
    sys.exit(0 if reached(good) else 1)


if __name__ == "__main__":
    main()
