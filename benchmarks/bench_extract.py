"""Main text by ours and by others, on pages with known main text, with intervals and rates.

    python benchmarks/bench_extract.py [--only NAME ...] [--save TEXTS.jsonl]
        [--against TEXTS.jsonl] [--show COUNT [--seed SEED] -o FOLDER]

The development pages of WCXB (Foley 2026): mean F1 of words by kind of page; on its articles also
of runs of four words, as the ScrapingHub benchmark counts; the passages of trafilatura's own
evaluation (extract_pages.py); and news in five languages, by language (the DAnIEL corpus), with
precision and recall. The texts of ours are made by weights fitted without the page's site
(fit_extract.py, five folds); the line "as shipped" shows the weights that were fitted on all of
them, which says nothing of other pages. Each extractor runs in a process of its own over the same
decoded pages, in CPU seconds, the median of several passes over WCXB; memory is what it needs
beyond its first pages. resiliparse runs as the step `extract` runs it. Then each row of ours less
that of others, with paired intervals (extract_scores.py). The tables are Markdown.

--save writes the texts, --against compares ours with those of another version page by page: exit
status 1 where a row of F1 loses and its interval is below 0. Exit status 1 also where ours, of
sites not seen, is below TARGET or below any mode of trafilatura in any row of F1, or its rate
below RATIO times that of trafilatura. --only takes some extractors, `unseen` among them; `blocks`
alone takes half a minute. --show writes a page with so many drawn pages, and what is missing and
what is extra in each (extract_shown.py).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.extract_pages import texts_by, write_pages
from benchmarks.extract_scores import (
    EVERY_ROW,
    MEASURES,
    NEWS,
    OF_NEWS,
    OF_WCXB,
    PASSAGES,
    ROWS,
    Pages,
    Row,
    Texts,
    difference,
    rows_of,
    save,
    saved,
    table,
)
from benchmarks.extract_shown import show
from benchmarks.fit_extract import texts_of_unseen_sites
from benchmarks.shared_texts import reached, sized

OURS, UNSEEN = "blocks", "unseen"
PASSES = {
    OURS: sized(5, 1),
    "trafilatura recall": 1,
    "trafilatura": 1,
    "trafilatura fast": 1,
    "trafilatura precision": 1,
    "resiliparse": sized(5, 1),
    "justext": 1,
    "readability": 1,
}
LABELS = {UNSEEN: "blocks, sites not seen", OURS: "blocks, as shipped"}
PEERS = ("trafilatura", "resiliparse")  # with intervals
TARGET, RATIO = 0.87, 8.0


@dataclass
class Speed:
    """Of one core: pages of WCXB a second of CPU time, and MiB beyond the first pages."""

    rate: float
    memory: float


def label(name: str) -> str:
    return LABELS.get(name, name)


def run(name: str, pages: Pages, texts: dict[str, Texts], folder: Path) -> Speed | None:
    """Adds an extractor's texts to `texts`; None where its speed is not measured."""
    if name == UNSEEN:
        texts[name] = Texts(*texts_of_unseen_sites(pages.whole, pages.partly, pages.news))
        return None
    found, figures = texts_by(name, folder / "whole.jsonl", PASSES[name])
    others = (texts_by(name, folder / f"{which}.jsonl")[0] for which in ("partly", "news"))
    texts[name] = Texts(found, *others)
    rate = len(found) / statistics.median(figures["seconds"])
    return Speed(rate, figures["peak_mib"] - figures["before_mib"])


def quality(rows: dict[str, dict[str, Row]], speeds: dict[str, Speed | None]) -> str:
    """Two tables: F1 and speed; precision, recall and F1 of news."""
    shown, news = [], []
    for name, found in rows.items():
        speed = speeds.get(name)
        last = [f"{speed.rate:.0f}", f"{speed.memory:.0f}"] if speed else ["", ""]
        figures = (found[row].figure for row in (*OF_WCXB, PASSAGES) if row in found)
        shown.append([label(name), *(f"{figure:.3f}" for figure in figures), *last])
        cells = []
        for row in OF_NEWS:
            if row in found:
                precision, recall = (found[f"{row}, {part}"].figure for part in MEASURES)
                cells.append(f"{found[row].figure:.3f} ({precision:.2f}, {recall:.2f})")
        news.append([label(name), *cells])
    some = next(iter(rows.values()))
    heads = ["", *(row for row in (*OF_WCXB, PASSAGES) if row in some), "pages/s", "MiB"]
    news_heads = ["", *(row.removeprefix(f"{NEWS} ") for row in OF_NEWS if row in some)]
    note = "News: F1 (precision, recall).\n\n"
    return table(heads, shown) + "\n" + note + table(news_heads, news)


def differences(ours: dict[str, Row], others: dict[str, dict[str, Row]]) -> tuple[str, list[str]]:
    """Each row of ours less that of each other, as a table; the rows of F1 that are significantly
    below the last of the others."""
    shown, losing = [], []
    for name in EVERY_ROW:
        if name not in ours:
            continue
        row = ours[name]
        cells = [name, str(len(row.sites)), str(len(set(row.sites))), f"{row.figure:.3f}"]
        for other in others.values():
            less = difference(row, other[name])
            cells += [f"{other[name].figure:.3f}", str(less)]
        shown.append(cells)
        if name in ROWS and less.high < 0:
            losing.append(f"{name} {less}")
    heads = ["", "pages", "sites", "ours"]
    for other in others:
        heads += [other if other in PEERS else "before", "ours less it [95 %]"]
    return table(heads, shown), losing


def missed(rows: dict[str, dict[str, Row]], speeds: dict[str, Speed | None]) -> Iterable[str]:
    """The targets that are not reached, of those that were measured."""
    modes = [found for name, found in rows.items() if name.startswith("trafilatura")]
    ours, theirs = speeds.get(OURS), speeds.get("trafilatura")
    if ours and theirs:
        ratio = ours.rate / theirs.rate
        print(f"{ours.rate:.0f} pages/s, {ratio:.1f} times trafilatura (target {RATIO:g})")
        if ratio < RATIO:
            yield "rate"
    if UNSEEN in rows:
        unseen = rows[UNSEEN]
        if unseen["all"].figure < TARGET:
            yield f"all pages: {unseen['all'].figure:.3f}, target {TARGET}"
        for name in ROWS:
            if name in unseen and any(unseen[name].figure < mode[name].figure for mode in modes):
                yield f"behind trafilatura: {name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    names = (UNSEEN, *PASSES)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--save", type=Path, metavar="TEXTS.jsonl")
    parser.add_argument("--against", type=Path, metavar="TEXTS.jsonl")
    parser.add_argument("--show", type=int, default=0, metavar="COUNT", help="draw pages")
    parser.add_argument("--seed", type=int, default=0, help="of --show (default: 0)")
    parser.add_argument("-o", "--output", type=Path, help="folder of --show", metavar="FOLDER")
    asked = parser.parse_args()
    if asked.show and not asked.output:
        parser.error("--show needs -o FOLDER")
    wanted = [name for name in (*PASSES, UNSEEN) if name in asked.only or name == OURS]
    pages = Pages.load()
    size = sum(len(page.html.encode()) for page in pages.whole) / 1e6
    sites = len({page.site for page in pages.whole})
    print(f"WCXB: {len(pages.whole)} pages, {size:.1f} MB, {sites} sites")
    texts: dict[str, Texts] = {}
    speeds: dict[str, Speed | None] = {}
    before = saved(pages, asked.against) if asked.against else {}
    if asked.against and OURS not in before:
        sys.exit(f"{asked.against} has no texts of ours: write it with --save")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(pages.whole, folder / "whole.jsonl")
        write_pages(pages.partly, folder / "partly.jsonl")
        write_pages(pages.news, folder / "news.jsonl")
        for name in wanted:
            print(f"{label(name)} ...", file=sys.stderr, flush=True)
            speeds[name] = run(name, pages, texts, folder)
    if asked.save:
        save(texts, pages, asked.save)
    rows = {name: rows_of(pages, texts[name]) for name in names if name in texts}
    print("\n" + quality(rows, speeds))
    mine = next(name for name in (UNSEEN, OURS) if name in (before or rows) and name in rows)
    others = {name: rows[name] for name in PEERS if name in rows}
    for name in (*PEERS, mine) if before else ():
        if name in before and name not in others:
            others[name] = rows_of(pages, before[name])
    failed = list(missed(rows, speeds))
    if others:
        print(f"Ours: {label(mine)}.\n")
        shown, losing = differences(rows[mine], others)
        print(shown)
        failed += [f"loses: {line}" for line in losing] if before else []
    if asked.show:
        print(show(pages, texts[mine], asked.show, asked.seed, asked.output))
    for line in failed:
        print(line)
    sys.exit(not reached(not failed))


if __name__ == "__main__":
    main()
