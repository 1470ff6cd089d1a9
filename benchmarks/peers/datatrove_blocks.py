"""Blocks of DataTrove on documents in memory, for migrate_decisions.py; runs in DataTrove's own
environment and prints one JSON line: {block: [the text of each document, null if it is dropped]}.

    datatrove_blocks.py BLOCKS.txt DOCUMENTS.jsonl [LANGUAGE MODEL]

Each line of the first file is the constructor of a filter or formatter, or of the first stage of a
dedup, whose other stages follow.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path


def blocks() -> dict:
    from datatrove.pipeline import dedup, filters, formatters
    from datatrove.pipeline.dedup import minhash, sentence_dedup

    modules = (filters, formatters, dedup, minhash, sentence_dedup)
    return {name: value for module in modules for name, value in vars(module).items()}


def deduplicated(line: str, texts: list, folder: str) -> list:
    from datatrove.data import Document
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        SentenceDedupFilter,
        SentenceFindDedups,
    )

    def documents() -> list:
        return [Document(text=text, id=str(i)) for i, text in enumerate(texts)]

    first = eval(line, {**blocks(), "FOLDER": f"{folder}/signatures"})
    first.run(documents(), 0, 1)
    if line.startswith("Minhash"):
        for bucket in range(first.config.num_buckets):
            MinhashDedupBuckets(
                f"{folder}/signatures", f"{folder}/buckets", config=first.config
            ).run(None, bucket, first.config.num_buckets)
        MinhashDedupCluster(f"{folder}/buckets", f"{folder}/remove", config=first.config).run()
        last = MinhashDedupFilter(f"{folder}/remove")
    else:
        SentenceFindDedups(f"{folder}/signatures", f"{folder}/found", config=first.config).run()
        last = SentenceDedupFilter(f"{folder}/found", config=first.config)
    kept = {doc.id: doc.text for doc in last.run(documents(), 0, 1)}
    return [kept.get(str(i)) for i in range(len(texts))]


def main(lines: str, source: str, model: str = "") -> None:
    from datatrove.data import Document

    texts = [json.loads(line)["text"] for line in Path(source).read_text().split("\n")[:-1]]
    done: dict = {}
    for line in Path(lines).read_text().splitlines():
        if "FOLDER" in line:
            with tempfile.TemporaryDirectory() as folder:
                done[line] = deduplicated(line, texts, folder)
            continue
        block = eval(line, blocks())
        if line.startswith("LanguageFilter"):
            from fasttext.FastText import _FastText

            block.model._model = _FastText(model)  # the given file, instead of a download
        results = done[line] = []
        for text in texts:
            doc = Document(text=text, id="")
            kept = block.format(text) if hasattr(block, "format") else block.filter(doc)
            refused = kept is None or isinstance(kept, tuple) or not kept
            changed = kept if isinstance(kept, str) else doc.text
            results.append(None if refused else changed)
    print(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
