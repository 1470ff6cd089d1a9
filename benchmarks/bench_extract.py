"""Main text by ours, resiliparse, trafilatura and jusText: what belongs and is there, and the rate.

    python benchmarks/bench_extract.py

532 real pages with passages that belong to the main text and some that do not, counted as
trafilatura's own evaluation does (extract_pages.py). Each extractor runs in a process of its own
over the same decoded pages, in CPU seconds, the median of several passes; memory is what it needs
beyond its first pages. resiliparse runs as the step `extract` runs it. The shipped weights of ours
were fitted on these pages: the line "sites not seen" is what counts, texts by weights fitted
without the page's site (fit_extract.py, ten folds). Exit status 1 where its F1 is below that of
trafilatura's best mode, or our rate below twice that of trafilatura's fast mode.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.extract_pages import load_pages, scores, texts_by, write_pages
from benchmarks.fit_extract import Data, opinions, texts_of_unseen_sites

PASSES = {
    "blocks": 5,
    "resiliparse": 5,
    "trafilatura fast": 3,
    "trafilatura": 1,
    "trafilatura precision": 1,
    "trafilatura recall": 1,
    "justext": 1,
}
TARGET = 2.0


def line(name: str, quality: dict[str, float], rate: float | None, figures: dict[str, Any]) -> str:
    memory = figures.get("peak_mib", 0) - figures.get("before_mib", 0)
    speed = "" if rate is None else f"{rate:>9.0f}{memory:>9.0f}"
    return f"{name:<34}" + "".join(f"{v:>9.3f}" for v in quality.values()) + speed


def main() -> None:
    pages = load_pages()
    size = sum(len(p.html.encode()) for p in pages) / 1e6
    print(f"{len(pages)} pages, {size:.1f} MB, {len({p.site for p in pages})} sites")
    names = ("precision", "recall", "F1", "accuracy", "pages/s", "MiB")
    print(f"{'':<34}" + "".join(f"{name:>9}" for name in names))
    texts: dict[str, list[str]] = {}
    f1: dict[str, float] = {}
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pages.jsonl"
        write_pages(pages, source)
        for name, passes in PASSES.items():
            texts[name], figures = texts_by(name, source, passes)
            quality = scores(pages, texts[name])
            f1[name] = quality["f1"]
            rates[name] = len(pages) / statistics.median(figures["seconds"])
            label = "blocks, weights fitted on these" if name == "blocks" else name
            print(line(label, quality, rates[name], figures), flush=True)
    unseen = scores(pages, texts_of_unseen_sites(Data(pages, opinions(texts))))
    print(line("blocks, sites not seen", unseen, None, {}))
    best = max(v for name, v in f1.items() if name.startswith("trafilatura"))
    ratio = rates["blocks"] / rates["trafilatura fast"]
    print(
        f"F1 on sites not seen: {unseen['f1']:.4f}, trafilatura's best mode {best:.4f}; "
        f"rate: {ratio:.1f} times its fast mode (target {TARGET})"
    )
    sys.exit(unseen["f1"] < best or ratio < TARGET)


if __name__ == "__main__":
    main()
