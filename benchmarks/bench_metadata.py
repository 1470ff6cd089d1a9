"""Title, author and date that pages state: ours and trafilatura 2's against a person's.

    python benchmarks/bench_metadata.py [--half 0|1]

The pages are wcxb's, decoded once, with their addresses. An answer is right, wrong or missing
where gold states a value, false where it states none. accuracy: pages with the right answer, which
may be none. F1: of right answers among those given and among those of gold. Pages write their title
in two or three ways, of which gold has one, now this and now that: a line counts titles with half
of the words. A date is ours as the column has it, in UTC, gold's in the page's zone: a line counts
the day beside, too. `--half` takes the sites of one half alone. Exit status
1 where ours is behind in accuracy or F1 of all pages.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.extract_pages import PEER, WholePage, load_whole_pages
from benchmarks.shared_texts import ROOT, reached, without
from curate.extract.evaluate import names, plain

FIELDS = ("title", "author", "date")
Row = dict[str, Any]

_SITE = re.compile(r"\s+[|\-·•»:]+\s+[^|·•»]+$")


def short(title: str) -> str:
    """A title without a last part that a separator sets apart, as names of sites are."""
    return _SITE.sub("", plain(title))


def alike(gold: str, answer: str) -> bool:
    """Whether two titles share half of their words (Dice's coefficient)."""
    a, b = (set(re.findall(r"\w+", plain(title))) for title in (gold, answer))
    return 4 * len(a & b) >= len(a) + len(b)


def near(gold: str, answer: str) -> bool:
    """Whether two days are the same or neighbours: the same moment may be both, by zones."""
    try:
        return abs((date.fromisoformat(gold[:10]) - date.fromisoformat(answer[:10])).days) <= 1
    except ValueError:
        return False


# Lines of the table: the field, and when an answer is right.
LINES: dict[str, tuple[str, Callable[[str, str], bool]]] = {
    "title": ("title", lambda gold, answer: plain(gold) == plain(answer)),
    "title, site's name off": ("title", lambda gold, answer: short(gold) == short(answer)),
    "title, half of the words": ("title", alike),
    "author": ("author", lambda gold, answer: names(gold) == names(answer)),
    "date": ("date", lambda gold, answer: gold[:10] == answer[:10]),
    "date, or the day beside": ("date", near),
}


def outcome(gold: str, answer: str | None, same: Callable[[str, str], bool]) -> str:
    """right, wrong, missing; false or none where gold states nothing."""
    if not gold:
        return "false" if answer else "none"
    if not answer:
        return "missing"
    return "right" if same(gold, answer) else "wrong"


def figures(counts: Counter[str]) -> tuple[float, float]:
    """Accuracy and F1."""
    stated = counts["right"] + counts["wrong"] + counts["missing"]
    given = counts["right"] + counts["wrong"] + counts["false"]
    return (
        (counts["right"] + counts["none"]) / max(1, sum(counts.values())),
        2 * counts["right"] / max(1, stated + given),
    )


def ours(pages: list[WholePage]) -> list[Row]:
    """What the step `extract` writes into its columns."""
    import pyarrow as pa

    from curate.extract import metadata
    from curate.extract.blocks import main_texts

    stated: list[Row] = []
    for k in range(0, len(pages), 64):
        texts = main_texts(pa.array([p.html for p in pages[k : k + 64]], pa.large_string()))
        for row in range(len(texts.text)):
            title, day, author, _, _ = texts.stated(row, pages[k + row].url)
            when = metadata.published(day)
            stated.append(
                {
                    "title": title,
                    "author": metadata.author(author),
                    "date": when and when.date().isoformat(),
                }
            )
    return stated


def theirs(pages: list[WholePage]) -> list[Row]:
    """trafilatura's answers, in its own environment, which is built when absent."""
    without("trafilatura", PEER)
    build = ["sh", str(ROOT / "benchmarks" / "peer_env.sh"), "extract"]
    subprocess.run(build, check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "pages.jsonl"), Path(folder, "stated.jsonl")
        lines = (json.dumps({"html": page.html, "url": page.url}) + "\n" for page in pages)
        source.write_text("".join(lines))
        script = ROOT / "benchmarks" / "peers" / "page_metadata.py"
        subprocess.run([str(PEER), str(script), str(source), str(target)], check=True)
        return [json.loads(line) for line in target.read_text().split("\n")[:-1]]


def half(page: WholePage) -> int:
    """0 or 1 by the site's name."""
    return zlib.crc32(page.site.encode()) & 1


def table(pages: list[WholePage], answers: dict[str, list[Row]]) -> bool:
    """Prints the counts of each field, overall and by kind of page; whether ours is behind."""
    outcomes = ("right", "wrong", "missing", "false", "none")
    kinds = ["all", *sorted({page.kind for page in pages})]
    behind = False
    for label, (field, same) in LINES.items():
        print(f"\n{label:38}" + "".join(f"{n:>8}" for n in (*outcomes, "acc.", "F1")))
        for kind in kinds:
            scores = []
            for name, stated in answers.items():
                counts = Counter(
                    outcome(getattr(page, field), answer[field], same)
                    for page, answer in zip(pages, stated, strict=True)
                    if kind in ("all", page.kind)
                )
                scores.append(figures(counts))
                shown = "".join(f"{counts[n]:8}" for n in outcomes)
                print(f"  {kind:14} {name:20} {shown}" + "".join(f"{f:8.3f}" for f in scores[-1]))
            if kind == "all":
                behind |= any(a < b for a, b in zip(*scores, strict=True))
    return behind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--half", type=int, choices=(0, 1), help="sites of one half alone")
    chosen = parser.parse_args().half
    pages = [page for page in load_whole_pages() if chosen is None or half(page) == chosen]
    print(f"{len(pages)} pages of {len({page.site for page in pages})} sites")
    answers = {"llmcurate": ours(pages), "trafilatura 2.0": theirs(pages)}
    sys.exit(not reached(not table(pages, answers)))


if __name__ == "__main__":
    main()
