"""Which extractor a shipped recipe should take: what it keeps with each, beside the published one.

    python benchmarks/recipe_extractors.py

The development pages of WCXB (Foley 2026) go through every recipe whose published extractor is not
ours, without the steps on a whole corpus (dedup, perplexity), classifiers and lists. What is
published: for FineWeb DataTrove's own extractor and filters; for others the published extractor
before our steps, where all visible text stands for Common Crawl's own (WET); the first lines
compare each extractor with a real WET record. By recipe and extractor (* is shipped): pages kept,
mean F1 of words of the kept texts against the pages' whole main text, Jaccard index of the two kept
sets, F1 between the two texts of pages that both keep, and pages that only ours or only theirs
keeps. Exit status 1 where a recipe ships another extractor than the closest (kept set first, then
text) that needs no installation. `blocks` was fitted on these pages, which flatters its figures.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.extract_pages import WholePage, load_whole_pages, texts_by, write_pages
from benchmarks.shared_texts import ROOT, last_json, need, peer_python, reached
from curate.extract.evaluate import word_scores, words
from curate.extract.extraction import Extract
from curate.run.driver import carry_out
from curate.run.records import Options
from curate.scoring.quality.quality import Quality
from curate.steps.contracts import Step
from curate.steps.recipe import load

PASSES = {
    "blocks": 3,
    "resiliparse": 3,
    "text": 3,
    "trafilatura": 1,
    "trafilatura precision": 1,
    "justext English": 1,
}
INSTALLED = ("blocks", "resiliparse", "text")
DATATROVE = "DataTrove"
COMPARED = {  # by recipe the published extractor, then others beside those that are installed
    "fineweb": (DATATROVE, "trafilatura precision"),
    "refinedweb": ("trafilatura",),
    "c4": ("text",),
    "ccnet-llama1": ("text",),
    "pile-cc": ("justext English",),
    "massiveweb": (),  # its extractor is not public
}
Kept = dict[int, Counter[str]]  # the words of kept texts, by page


class Closeness(NamedTuple):
    """How close kept pages are to those of the published pipeline; the closer the larger."""

    jaccard: float
    f1: float
    ours: int
    theirs: int


def closeness(kept: Kept, published: Kept) -> Closeness:
    both = kept.keys() & published.keys()
    ours, theirs = len(kept) - len(both), len(published) - len(both)
    jaccard = len(both) / max(1, len(both) + ours + theirs)
    return Closeness(jaccard, mean_f1([(kept[k], published[k]) for k in both]), ours, theirs)


def mean_f1(pairs: list[tuple[Counter[str], Counter[str]]]) -> float:
    return statistics.fmean(word_scores(a, b)[2] for a, b in pairs) if pairs else 0.0


def kept_by(name: str, texts: list[str], pages: list[WholePage]) -> Kept:
    """What a recipe's steps on single documents keep of the texts; no text is not kept."""
    recipe = load(name, ("c4.badwords=null",) if name == "c4" else ())
    steps = tuple(
        s for s in recipe.steps if isinstance(s, Step) and not isinstance(s, (Extract, Quality))
    )
    alone = replace(recipe, steps=steps, cuts=frozenset())
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "texts.jsonl", Path(folder) / "out"
        with source.open("w") as file:
            for k, (page, text) in enumerate(zip(pages, texts, strict=True)):
                if text:
                    file.write(json.dumps({"id": str(k), "url": page.url, "text": text}) + "\n")
        carry_out(alone, [str(source)], out, Options(1, True))
        parts = sorted(out.glob("corpus/part-*.parquet"))
        rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    return {int(row["id"]): Counter(words(row["text"])) for row in rows}


def kept_by_datatrove(source: Path, folder: Path) -> tuple[Kept, float]:
    """FineWeb's pages by DataTrove, and seconds of its extractor."""
    script, target = ROOT / "benchmarks" / "peers" / "datatrove_fineweb.py", folder / "theirs.jsonl"
    model = os.environ["LLMCURATE_LID_MODEL"]
    figures = last_json([peer_python(), str(script), model, str(source), str(target)])
    texts = [json.loads(line)["text"] for line in target.read_text().split("\n")[:-1]]
    kept = {k: Counter(words(text)) for k, text in enumerate(texts) if text is not None}
    return kept, figures["seconds"][0]


def wet_page() -> tuple[str, str]:
    """A page of Common Crawl: its HTML, and the text that Common Crawl made of it."""
    from warcio.archiveiterator import ArchiveIterator

    found = {}
    for suffix, kind in (("", "response"), (".wet", "conversion")):
        with need(f"real_warc/commoncrawl-whirlwind/whirlwind.warc{suffix}.gz")[0].open(
            "rb"
        ) as file:
            for record in ArchiveIterator(file):
                if record.rec_type == kind:
                    found[kind] = record.content_stream().read().decode()
    return found["response"], found["conversion"]


def extracted(pages: list[WholePage], folder: Path) -> tuple[dict[str, list[str]], Kept]:
    """Texts of all pages by extractor, and what DataTrove keeps; prints rates."""
    source, single = folder / "pages.jsonl", folder / "single.jsonl"
    write_pages(pages, source)
    html, wet = wet_page()
    single.write_text(json.dumps({"html": html}) + "\n")
    texts = {}
    print(f"{len(pages)} pages\n{'':<24}{'pages/s':>9}{'F1 to WET':>11}")
    for name, passes in PASSES.items():
        texts[name], figures = texts_by(name, source, passes)
        rate = len(pages) / statistics.median(figures["seconds"])
        (text,), _ = texts_by(name, single)
        f1 = word_scores(Counter(words(text)), Counter(words(wet)))[2]
        print(f"{name:<24}{rate:>9.0f}{f1:>11.3f}", flush=True)
    datatrove, seconds = kept_by_datatrove(source, folder)
    print(f"{DATATROVE:<24}{len(pages) / seconds:>9.0f}", flush=True)
    return texts, datatrove


def main() -> None:
    os.environ.setdefault("LLMCURATE_LID_MODEL", str(need("models/lid.176.ftz")[0]))
    pages = load_whole_pages()
    gold = [Counter(words(page.text)) for page in pages]
    with tempfile.TemporaryDirectory() as folder:
        texts, datatrove = extracted(pages, Path(folder))
    heads = ("kept", "gold F1", "Jaccard", "F1", "more", "fewer")
    print(f"\n{'':<42}" + "".join(f"{head:>9}" for head in heads))
    failed = False
    for recipe, compared in COMPARED.items():
        shipped = next(s.extractor for s in load(recipe).steps if isinstance(s, Extract))
        kept = {n: kept_by(recipe, texts[n], pages) for n in (*INSTALLED, *compared) if n in texts}
        if DATATROVE in compared:
            kept[DATATROVE] = datatrove
        close = {n: closeness(k, kept[compared[0]]) for n, k in kept.items() if compared}
        for name, of_pages in kept.items():
            mark = "*" if name.split()[0] == shipped else ""
            figures = (
                f"{len(of_pages):>9}{mean_f1([(t, gold[k]) for k, t in of_pages.items()]):>9.3f}"
            )
            if close:
                jaccard, f1, more, fewer = close[name]
                figures += f"{jaccard:>9.3f}{f1:>9.3f}{more:>9}{fewer:>9}"
            print(f"{recipe:<18}{name + mark:<24}{figures}", flush=True)
        if compared and shipped != compared[0].split()[0]:
            closest = max(INSTALLED, key=close.__getitem__)
            if shipped != closest:
                print(f"{recipe}: {closest} is closer than {shipped}")
                failed = True
    sys.exit(not reached(not failed))


if __name__ == "__main__":
    main()
