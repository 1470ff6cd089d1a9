"""FineWeb's pages by DataTrove itself, for recipe_extractors.py; runs in DataTrove's own
environment, writes a text a line (null: dropped) and prints one JSON line.

    datatrove_fineweb.py MODEL PAGES.jsonl TEXTS.jsonl

Steps and settings of its examples/fineweb.py from the extractor to the last filter. Its limit of a
second a page is not used, since it would depend on the machine.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main(model: str, source: str, target: str) -> dict:
    from datatrove.data import Document
    from datatrove.pipeline.extractors import Trafilatura
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
        LanguageFilter,
    )
    from fasttext.FastText import _FastText

    language = LanguageFilter(["en"])
    language.model._model = _FastText(model)  # the given file, instead of a download
    filters = [
        language,
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        C4QualityFilter(filter_no_terminal_punct=False),
        FineWebQualityFilter(),
    ]
    extractor = Trafilatura(favour_precision=True)
    pages = [json.loads(line)["html"] for line in Path(source).read_text().split("\n")[:-1]]
    seconds = 0.0
    with Path(target).open("w") as out:
        for number, page in enumerate(pages):
            begin = time.process_time()
            try:
                text = extractor.extract(page)
            except Exception:  # as its sandbox does: the page is dropped
                text = None
            seconds += time.process_time() - begin
            doc = Document(text=text or "", id=str(number))
            kept = bool(text) and all(step.filter(doc) is True for step in filters)
            out.write(json.dumps({"text": doc.text if kept else None}) + "\n")
    return {"seconds": [seconds]}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
