"""DataTrove's NGramsDecontFilter on documents in memory, for bench_decontaminate.py; runs in
DataTrove's own environment and prints one JSON line.

datatrove_decontaminate.py FOLDER    with sample.jsonl (documents) and items.jsonl
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

N = 13


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def main(folder: str) -> dict:
    from datatrove.data import Document
    from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter
    from datatrove.utils.text import ngrams, simplify_text

    items, rows = rows_of(Path(folder, "items.jsonl")), rows_of(Path(folder, "sample.jsonl"))
    config = NGramsDecontConfig(n_grams=N)
    with tempfile.TemporaryDirectory() as index:
        step = NGramsDecontFilter(index, config)
        # What NGramsDecontIndexer.compute_hashes does with a label, without lighteval.
        hashes = {
            step.hash_func(" ".join(gram))
            for item in items
            for gram in ngrams(
                step.tokenizer.word_tokenize(simplify_text(item["text"], config.norm_config)), N
            )
        }
        array = np.array(sorted(hashes), dtype=config.hash_config.np_descr)
        array.tofile(Path(index, "items.index.hashes"))
        step.filter(Document(text="warm up", id="0"))
        times, hits = [], []
        for _ in range(3):
            docs = [Document(text=row["text"], id=row["id"]) for row in rows]
            begin = time.perf_counter()
            hits = [step.filter(doc) is not True for doc in docs]
            times.append(time.perf_counter() - begin)
    status = Path("/proc/self/status").read_text()
    return {
        "seconds": times,
        "hits": hits,
        "bytes": sum(len(row["text"].encode()) for row in rows),
        "peak_mib": int(status.split("VmHWM:")[1].split()[0]) / 1024,
    }


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        result = main(sys.argv[1])
    print(json.dumps(result))
