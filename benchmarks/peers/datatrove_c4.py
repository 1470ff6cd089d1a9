"""Drives DataTrove for the comparisons; runs in its own environment and prints one JSON line.

datatrove_c4.py filter DOCUMENTS.jsonl        C4QualityFilter on documents in memory
datatrove_c4.py warc FOLDER OUT c4|all        WarcReader, Trafilatura, filters, writer
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def peak_mib() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def c4():
    from datatrove.pipeline.filters import C4QualityFilter

    # C4's own limits instead of DataTrove's 3 words and 5 sentences.
    return C4QualityFilter(min_words_per_line=5, min_num_sentences=3)


def filter_documents(path: str) -> dict:
    from datatrove.data import Document

    rows = [json.loads(line) for line in Path(path).read_text().split("\n")[:-1]]
    step = c4()
    list(step.run([Document(text=rows[0]["text"], id="warm-up")]))
    docs = [Document(text=row["text"], id=row["id"]) for row in rows]
    begin = time.perf_counter()
    kept = sum(1 for _ in step.run(docs))  # half a minute: one pass is enough
    return {"seconds": [time.perf_counter() - begin], "kept": kept, "peak_mib": peak_mib()}


def filters(which: str) -> list:
    if which == "c4":
        return [c4()]
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    return [  # the order and settings of DataTrove's examples/fineweb.py, language aside
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        C4QualityFilter(filter_no_terminal_punct=False),
        FineWebQualityFilter(),
    ]


def warc_to_text(folder: str, out: str, which: str) -> dict:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.extractors import Trafilatura
    from datatrove.pipeline.readers import WarcReader
    from datatrove.pipeline.writers import JsonlWriter

    stats = LocalPipelineExecutor(
        [
            WarcReader(folder, glob_pattern="*.warc.gz"),
            Trafilatura(favour_precision=True, deduplicate=True),
            *filters(which),
            JsonlWriter(f"{out}/kept"),
        ],
        tasks=1,
        workers=1,
        logging_dir=f"{out}/logs",
    ).run()
    return {"kept": stats.stats[-1].stats["total"].total, "peak_mib": peak_mib()}


if __name__ == "__main__":
    task, *rest = sys.argv[1:]
    result = filter_documents(*rest) if task == "filter" else warc_to_text(*rest)
    print(json.dumps(result))
