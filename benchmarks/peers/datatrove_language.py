"""DataTrove's LanguageFilter on documents in memory, for bench_language.py; runs in DataTrove's own
environment and prints one JSON line.

datatrove_language.py MODEL DOCUMENTS.jsonl
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main(model: str, path: str) -> dict:
    from datatrove.data import Document
    from datatrove.pipeline.filters import LanguageFilter
    from fasttext.FastText import _FastText

    rows = [json.loads(line) for line in Path(path).read_text().split("\n")[:-1]]
    step = LanguageFilter(languages=["en"], language_threshold=0.65)
    step.model._model = _FastText(model)  # the same file, instead of a download
    list(step.run([Document(text=rows[0]["text"], id="warm-up")]))
    times, kept = [], 0
    for _ in range(5):
        docs = [Document(text=row["text"], id=row["id"]) for row in rows]
        begin = time.process_time()
        kept = sum(1 for _ in step.run(docs))
        times.append(time.process_time() - begin)
    return {"seconds": times, "kept": kept}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
