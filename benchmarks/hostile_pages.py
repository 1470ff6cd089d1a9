"""Pages built to stall extraction: seconds, and memory over the size of the page.

    python benchmarks/hostile_pages.py

resiliparse's main content mode by itself, without our limits (curate/extract/extraction.py); then
with them; then the extractor `blocks`, also its memory. Each in a process of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, peak_mib, sized

PAGES = {
    "div x 2,000, nested": "<div>x" * 2_000,
    "div x 8,000, nested": "<div>x" * 8_000,
    "div x 16,000, nested": "<div>x" * 16_000,
    "(article, 16 b) x 2,000, nested": ("<article>" + "<b>x" * 16) * 2_000,
    "div x 20,000, side by side": "<div>x</div>" * 20_000,
    "span x 500,000, nested": "<span>x" * 500_000,
    "b x 500,000, nested": "<b>x" * 500_000,
    "p x 490,000, side by side": "<p>x" * 490_000,
    "attributes, 5 MB of one tag": "<p " + "class='nav comment' " * 260_000 + ">x",
    "&amp; x 1,000,000": "<p>" + "&amp;" * 1_000_000,
    "math x 490,000, nested": "<math>x" * 490_000,
    "code x 240,000, nested": "<code><br>x" * 240_000,
    "div x 400,000, in pre": "<pre>" + "<div>x" * 400_000,
    "<!-- x 1,200,000": "<!--" * 1_200_000,
    "< x 1,000,000": "<" * 1_000_000,
    "& x 1,000,000": "<p>" + "&" * 1_000_000,
    "20,000 attributes of one tag": "<p " + " ".join(f"a{k}=1" for k in range(20_000)) + ">x",
    "an attribute of 20 MB": "<p title='" + "x" * 20_000_000 + "'>x",
    "100,000 words of class": "<p class='" + "comment " * 100_000 + "'>x",
    "< and a name of 1 MB": "<p/><" + "a" * 1_000_000,
}


def extractor(who: str) -> Callable[[str], str]:
    from resiliparse.extract.html2text import extract_plain_text

    from curate.extract import blocks
    from curate.extract.extraction import main_text

    if who == "library":
        return lambda page: extract_plain_text(page, main_content=True)
    return main_text if who == "limited" else blocks.main_text


def one(name: str, who: str) -> None:
    """Prints the figures of one page."""
    from curate.extract.extraction import TooDeep

    extract = extractor(who)
    page = "<html><body>" + PAGES[name]
    extract("<html><body><p>Warm up.</p></body></html>")
    before, begin = peak_mib(), time.perf_counter()
    what = "text"
    try:
        extract(page)
    except TooDeep as error:
        what = f"rejected: {error}"
    seconds = time.perf_counter() - begin
    grown = (peak_mib() - before) * 2**20 / len(page)
    print(json.dumps({"seconds": seconds, "grown": grown, "what": what, "bytes": len(page)}))


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        return one(sys.argv[2], sys.argv[3])
    print(
        f"{'page':<34}{'kB':>7}{'library':>10}{'memory':>9}{'limited':>9}{'blocks':>10}{'memory':>9}"
    )
    for name in list(PAGES)[: sized(None, 1)]:
        library, limited, ours = (
            last_json([sys.executable, __file__, "--one", name, who])
            for who in ("library", "limited", "blocks")
        )
        print(
            f"{name:<34}{library['bytes'] / 1000:>7.0f}{library['seconds']:>8.2f} s"
            f"{library['grown']:>7.0f} x{limited['seconds']:>7.2f} s{ours['seconds']:>8.2f} s"
            f"{ours['grown']:>7.0f} x  {limited['what']}"
        )


if __name__ == "__main__":
    main()
