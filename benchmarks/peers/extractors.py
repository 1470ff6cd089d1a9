"""Main text by one extractor, ours or another, for benchmarks/bench_extract.py; a process each.

    extractors.py NAME PAGES.jsonl TEXTS.jsonl [PASSES]

PAGES has one {"html": ...} a line; TEXTS gets one {"text": ...} a line, and a JSON line of figures
is printed. Some pages are read before the clock starts. trafilatura's modes are those of its own
evaluation (without comments).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

WARM = 5
BATCH = 64  # pages that ours gets at once, about as many as a run's batches hold
Extractor = Callable[[list[str]], list[str]]
TRAFILATURA: dict[str, dict[str, bool]] = {
    "trafilatura": {},
    "trafilatura fast": {"fast": True},
    "trafilatura precision": {"favor_precision": True},
    "trafilatura recall": {"favor_recall": True},
}


def peak_mib() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def one_by_one(extract: Callable[[str], str]) -> Extractor:
    """A page that an extractor fails on has no text."""

    def guarded(page: str) -> str:
        try:
            return extract(page)
        except Exception:
            return ""

    return lambda pages: [guarded(page) for page in pages]


def trafilatura(**options: bool) -> Extractor:
    from trafilatura import extract

    return one_by_one(lambda html: extract(html, include_comments=False, **options) or "")


def justext(*languages: str) -> Extractor:
    """jusText needs a language: the stop words of all of them, which is what it offers for pages
    of languages that nobody knows."""
    import justext as library

    stop: frozenset[str] = frozenset()
    for language in languages or library.get_stoplists():
        stop |= library.get_stoplist(language)

    def extract(html: str) -> str:
        if not html.strip():
            return ""
        paragraphs = library.justext(html.encode(), stop, encoding="utf-8")
        return "\n".join(p.text for p in paragraphs if not p.is_boilerplate)

    return one_by_one(extract)


def readability() -> Extractor:
    """Arc90's, in the port that Python has: its article's text, lines between its elements."""
    from lxml.html import fromstring
    from readability import Document

    def extract(html: str) -> str:
        return "\n".join(fromstring(Document(html).summary()).itertext())

    return one_by_one(extract)


def resiliparse() -> Extractor:
    from curate.extract.extraction import main_text

    return one_by_one(main_text)


def all_text() -> Extractor:
    from curate.extract.extraction import full_text

    return one_by_one(full_text)


def blocks() -> Extractor:
    import pyarrow as pa

    from curate.extract.blocks import main_texts

    def extract(pages: list[str]) -> list[str]:
        texts: list[str] = []
        for k in range(0, len(pages), BATCH):
            batch = pa.array(pages[k : k + BATCH], pa.large_string())
            texts += main_texts(batch).text.to_pylist()
        return texts

    return extract


def extractor(name: str) -> Extractor:
    if name in TRAFILATURA:
        return trafilatura(**TRAFILATURA[name])
    if name == "justext English":
        return justext("English")
    ours = {"resiliparse": resiliparse, "blocks": blocks, "text": all_text}
    return {"justext": justext, "readability": readability, **ours}[name]()


def main() -> None:
    name, source, target, *passes = sys.argv[1:]
    pages = [json.loads(line)["html"] for line in Path(source).read_text().split("\n")[:-1]]
    extract = extractor(name)
    extract(pages[:WARM])
    before, seconds = peak_mib(), []
    texts: list[str] = []
    for _ in range(int(passes[0]) if passes else 1):
        begin = time.process_time()
        texts = extract(pages)
        seconds.append(time.process_time() - begin)
    after = peak_mib()
    with Path(target).open("w") as out:
        for text in texts:
            out.write(json.dumps({"text": text}) + "\n")
    print(json.dumps({"seconds": seconds, "peak_mib": after, "before_mib": before}))


if __name__ == "__main__":
    main()
