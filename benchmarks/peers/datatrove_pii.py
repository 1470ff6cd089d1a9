"""DataTrove's PIIFormatter on documents in memory, for bench_pii.py and pii_languages.py; runs in
DataTrove's own environment and prints one JSON line.

datatrove_pii.py DOCUMENTS.jsonl            seconds of three passes
datatrove_pii.py DOCUMENTS.jsonl texts      the new texts
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main(path: str, what: str = "seconds") -> None:
    from datatrove.pipeline.formatters import PIIFormatter

    rows = [json.loads(line) for line in Path(path).read_text().split("\n")[:-1]]
    step = PIIFormatter()
    step.format("warm-up a@b.com 8.8.8.8")
    if what == "texts":
        print(json.dumps([step.format(row["text"]) for row in rows]))
        return
    times = []
    for _ in range(3):
        begin = time.process_time()
        out = [step.format(row["text"]) for row in rows]
        times.append(time.process_time() - begin)
    changed = sum(a != row["text"] for a, row in zip(out, rows, strict=True))
    print(json.dumps({"seconds": times, "changed": changed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
