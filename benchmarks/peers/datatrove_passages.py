"""DataTrove's paragraph filter and sentence dedup, for parity_passages.py; runs in DataTrove's own
environment and prints one JSON line.

datatrove_passages.py DOCUMENTS.jsonl    {"paragraphs": [dropped, ...],
                                          "lines": {id: text}, "sentences": {id: text}}
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from pathlib import Path


def sentence_dedup(rows: list[dict], lines: bool, lower: bool) -> dict[str, str]:
    """What its three steps leave of documents; lines: a line is a sentence; lower: its normal form
    is lower case and single blanks only."""
    from datatrove.data import Document
    from datatrove.pipeline.dedup.sentence_dedup import (
        SentDedupConfig,
        SentenceDedupFilter,
        SentenceDedupSignature,
        SentenceFindDedups,
    )
    from datatrove.utils.text import TextNormConfig

    norm = TextNormConfig(
        remove_punctuation=not lower, norm_unicode_diacritics=not lower, norm_numbers=not lower
    )
    config = SentDedupConfig(
        n_sentences=3,
        split_sentences=not lines,
        min_doc_words=0,
        min_num_sentences=0,
        norm_config=norm,
    )

    def documents() -> list:
        return [Document(text=row["text"], id=row["id"]) for row in rows]

    with tempfile.TemporaryDirectory() as folder:
        signatures, duplicates = f"{folder}/signatures", f"{folder}/duplicates"
        SentenceDedupSignature(signatures, config=config).run(documents())
        SentenceFindDedups(signatures, duplicates, config=config).run()
        remaining = SentenceDedupFilter(duplicates, config=config).run(documents())
        return {doc.id: doc.text for doc in remaining}


def main(path: str) -> None:
    from datatrove.data import Document
    from datatrove.pipeline.filters.c4_filters import C4ParagraphFilter

    rows = [json.loads(line) for line in Path(path).read_text().split("\n")[:-1]]
    rule = C4ParagraphFilter()
    with contextlib.redirect_stdout(sys.stderr):
        results = {
            "paragraphs": [rule.filter(Document(r["text"], r["id"])) is not True for r in rows],
            "lines": sentence_dedup([{**r, "text": r["lines"]} for r in rows], True, True),
            "sentences": sentence_dedup(rows, False, False),
        }
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
