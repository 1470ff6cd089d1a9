"""Preparation of a text for fastText's lid.176.ftz, and what it changes.

    python benchmarks/language_preparation.py

Looking at the beginning of long documents alone (`max_chars`): speed, labels, scores. And the
peers' ways with case, on the short texts of langid-dev: Dolma lower-cases before it asks. The
figures count texts in languages that the model knows.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import need

CUTS = (0, 2000, 1000, 500, 200)


def long_texts(size: int = 3400) -> list[tuple[str, str]]:
    """(text, language) of the documents in all languages, in pieces, at most 300 a language."""
    import zstandard

    chosen: list[tuple[str, str]] = []
    for path in need("longtext/*.jsonl.zst"):
        by_language: dict[str, list[tuple[str, str]]] = {}
        with path.open("rb") as file:
            for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8"):
                row = json.loads(line)
                text = row["text"]
                passages = by_language.setdefault(row["lang"], [])
                cuts = range(0, len(text) - size + 1, size)
                passages += [(text[i : i + size], row["lang"]) for i in cuts]
        for passages in by_language.values():
            chosen += passages[:: max(1, len(passages) // 300)][:300]
    return chosen


def beginnings(model: str) -> None:
    """Prints accuracy and speed by `max_chars`."""
    from curate.documents.documents import documents
    from curate.scoring.language.identification import Language
    from curate.text.languages import comparable

    rows = long_texts()
    docs = documents({"text": [text for text, _ in rows]})
    languages = {lang for _, lang in rows}
    print(f"{len(rows)} pieces of 3400 characters in {len(languages)} languages, by max_chars")
    for cut in CUTS:
        step = Language(model=model, max_chars=cut)
        step.open()
        begin = time.process_time()
        table = step.apply(docs.within("language")).table
        seconds = time.process_time() - begin
        labels = table["lang"].to_pylist()
        pairs = zip(labels, rows, strict=True)
        right = sum(comparable(a or "") == comparable(b) for a, (_, b) in pairs)
        sure = sum(score >= 0.65 for score in table["language.score"].to_pylist())
        print(
            f"  {cut or 'all':>5}{len(rows) / seconds:9.0f} documents/s, label right"
            f" {100 * right / len(rows):6.2f} %, score from 0.65 {100 * sure / len(rows):6.2f} %"
        )


def lower_case(model: str) -> None:
    """Prints how often lower case changes a label, and whether for the better."""
    from curate.documents.documents import documents
    from curate.scoring.fasttext.model_file import read_header
    from curate.scoring.language.identification import Language
    from curate.text.languages import comparable

    with gzip.open(need("langid/langid-dev.jsonl.gz")[0], "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    knows = {comparable(label) for label in read_header(model).labels}
    rows = [row for row in rows if comparable(row["lang"]) in knows]
    step = Language(model=model)
    step.open()
    languages = {}
    for name, texts in (
        ("as it is", [row["text"] for row in rows]),
        ("lower case", [row["text"].lower() for row in rows]),
    ):
        table = step.apply(documents({"text": texts}).within("language")).table
        languages[name] = table["lang"].to_pylist()
        pairs = zip(languages[name], rows, strict=True)
        right = sum(comparable(a or "") == comparable(row["lang"]) for a, row in pairs)
        print(f"  {name:<12}label right {100 * right / len(rows):6.2f} %")
    other = sum(a != b for a, b in zip(*languages.values(), strict=True))
    print(f"  the label differs for {100 * other / len(rows):.2f} % of {len(rows)} texts")


def main() -> None:
    model = str(need("models/lid.176.ftz")[0])
    beginnings(model)
    print("langid-dev")
    lower_case(model)


if __name__ == "__main__":
    main()
