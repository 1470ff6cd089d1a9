"""What pages cost that are built to stall extraction: seconds, and memory over the page's size.

    python benchmarks/hostile_pages.py

resiliparse's main content mode by itself, without our limits (curate/extract/step.py), on nested
elements; then our step on the same pages. Each in a process of its own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, peak_mib

PAGES = {
    "div x 2,000, nested": "<div>x" * 2_000,
    "div x 8,000, nested": "<div>x" * 8_000,
    "div x 16,000, nested": "<div>x" * 16_000,
    "(article, 16 b) x 2,000, nested": ("<article>" + "<b>x" * 16) * 2_000,
    "div x 20,000, side by side": "<div>x</div>" * 20_000,
    "span x 500,000, nested": "<span>x" * 500_000,
    "b x 500,000, nested": "<b>x" * 500_000,
    "p x 500,000, side by side": "<p>x" * 500_000,
}


def one(name: str, ours: bool) -> None:
    """Prints the figures of one page."""
    from resiliparse.extract.html2text import extract_plain_text

    from curate.extract.step import TooDeep, main_text

    page = "<html><body>" + PAGES[name]
    main_text("<html><body><p>Warm up.</p></body></html>")
    before, begin = peak_mib(), time.perf_counter()
    what = "text"
    try:
        main_text(page) if ours else extract_plain_text(page, main_content=True)
    except TooDeep as error:
        what = f"rejected: {error}"
    seconds = time.perf_counter() - begin
    grown = (peak_mib() - before) * 2**20 / len(page)
    print(json.dumps({"seconds": seconds, "grown": grown, "what": what, "bytes": len(page)}))


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        return one(sys.argv[2], sys.argv[3] == "ours")
    print(f"{'page':<34}{'kB':>7}{'library':>10}{'memory':>9}{'ours':>9}  outcome")
    for name in PAGES:
        theirs, mine = (
            last_json([sys.executable, __file__, "--one", name, who]) for who in ("theirs", "ours")
        )
        print(
            f"{name:<34}{theirs['bytes'] / 1000:>7.0f}{theirs['seconds']:>8.2f} s"
            f"{theirs['grown']:>7.0f} x{mine['seconds']:>7.2f} s  {mine['what']}"
        )


if __name__ == "__main__":
    main()
