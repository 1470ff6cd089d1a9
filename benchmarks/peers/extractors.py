"""Main text by other extractors, for benchmarks/bench_extract.py; runs in their own environment.

    extractors.py NAME PAGES.jsonl TEXTS.jsonl

PAGES has one {"html": ...} a line; TEXTS gets one {"text": ...} a line, and a JSON line of figures
is printed. The first pages are read once before the clock starts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

WARM = 5


def peak_mib() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def trafilatura_mode(**options: bool) -> Callable[[str], str]:
    from trafilatura import extract

    return lambda html: extract(html, **options) or ""


def justext_all() -> Callable[[str], str]:
    """jusText needs a language: the stop words of all of them, which is what it offers for pages
    of languages that nobody knows."""
    import justext

    stop: frozenset[str] = frozenset()
    for language in justext.get_stoplists():
        stop |= justext.get_stoplist(language)

    def extract(html: str) -> str:
        if not html.strip():
            return ""
        found = justext.justext(html.encode(), stop, encoding="utf-8")
        return "\n".join(p.text for p in found if not p.is_boilerplate)

    return extract


def extractor(name: str) -> Callable[[str], str]:
    if name == "justext":
        return justext_all()
    return trafilatura_mode(
        **{
            "trafilatura": {},
            "trafilatura fast": {"fast": True},
            "trafilatura fast, no comments": {"fast": True, "include_comments": False},
            "trafilatura precision": {"favor_precision": True},
            "trafilatura precision, no comments": {
                "favor_precision": True,
                "include_comments": False,
            },
            "trafilatura recall": {"favor_recall": True, "include_comments": False},
        }[name]
    )


def main() -> None:
    name, source, target = sys.argv[1:]
    pages = [json.loads(line)["html"] for line in Path(source).read_text().split("\n")[:-1]]
    extract = extractor(name)
    for page in pages[:WARM]:
        extract(page)
    before, begin = peak_mib(), time.perf_counter()
    texts, failed = [], 0
    for page in pages:
        try:
            texts.append(extract(page))
        except Exception:
            texts.append("")
            failed += 1
    seconds = time.perf_counter() - begin
    after = peak_mib()
    with Path(target).open("w") as out:
        for text in texts:
            out.write(json.dumps({"text": text}) + "\n")
    figures = {"seconds": seconds, "peak_mib": after, "before_mib": before, "failed": failed}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
