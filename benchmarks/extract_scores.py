"""The rows that texts of gold pages are scored in, their paired intervals, and tables in Markdown.

A row's figure is a sum over its pages divided by another: of scores by their number, or, of
passages, the F1 of all together. Words are multisets in lower case; of Chinese pages they are Han
characters, and words of Latin letters and digits.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.extract_pages import (
    NewsPage,
    Page,
    WholePage,
    load_news_pages,
    load_pages,
    load_whole_pages,
)
from curate.extract.evaluate import snippet_counts, word_scores, words
from curate.extract.net import KINDS

DRAWS, SEED, LEVEL = 2_000, 0, 0.95
RUN = 4  # words
LANGUAGES = ("el", "en", "pl", "ru", "zh")
MEASURES = ("precision", "recall")
RUNS, PASSAGES, NEWS = "runs of words", "passages", "news"
OF_WCXB = ("all", *KINDS, RUNS)
OF_NEWS = (NEWS, *(f"{NEWS} {lang}" for lang in LANGUAGES))
ROWS = (*OF_WCXB, PASSAGES, *OF_NEWS)  # of F1
EVERY_ROW = (*ROWS, *(f"{row}, {measure}" for row in OF_NEWS for measure in MEASURES))
_CHINESE = re.compile(r"[\u4e00-\u9fff]|[a-z0-9]+")


@dataclass
class Texts:
    """An extractor's texts of the pages of `Pages`, in their order."""

    whole: list[str]
    partly: list[str]
    news: list[str]


@dataclass
class Pages:
    """All pages with gold: of WCXB, those with passages, and news."""

    whole: list[WholePage]
    partly: list[Page]
    news: list[NewsPage]

    @classmethod
    def load(cls) -> Pages:
        return cls(load_whole_pages(), load_pages(), load_news_pages())

    def every(self) -> list[WholePage | Page | NewsPage]:
        return [*self.whole, *self.partly, *self.news]


def words_of(text: str, lang: str = "") -> Counter[str]:
    """The words of a text of that language."""
    return Counter(_CHINESE.findall(text.lower()) if lang == "zh" else words(text))


def runs(text: str) -> Counter[str]:
    """Runs of four words; a shorter text is one."""
    found = words(text)
    return Counter(" ".join(found[k : k + RUN]) for k in range(max(1, len(found) - RUN + 1)))


@dataclass(frozen=True)
class Row:
    """sites: one a page; terms: float64[pages, 2], what each adds to both sums of the figure."""

    sites: list[str]
    terms: np.ndarray

    @property
    def figure(self) -> float:
        above, below = self.terms.sum(0)
        return float(above / max(below, 1))


def rows_of(pages: Pages, texts: Texts) -> dict[str, Row]:
    """All rows (EVERY_ROW) that have a page."""
    sites: dict[str, list[str]] = {name: [] for name in EVERY_ROW}
    terms: dict[str, list[tuple[float, float]]] = {name: [] for name in EVERY_ROW}

    def add(name: str, site: str, above: float, below: float = 1) -> None:
        sites[name].append(site)
        terms[name].append((above, below))

    for page, text in zip(pages.whole, texts.whole, strict=True):
        score = word_scores(words_of(text), words_of(page.text))[2]
        add("all", page.site, score)
        add(page.kind, page.site, score)
        if page.kind == "article":
            add(RUNS, page.site, word_scores(runs(text), runs(page.text))[2])
    for part, text in zip(pages.partly, texts.partly, strict=True):
        tp, fp, fn, _ = snippet_counts(text, part.with_, part.without)
        add(PASSAGES, part.site, 2 * tp, 2 * tp + fp + fn)
    for news, text in zip(pages.news, texts.news, strict=True):
        *ratios, score = word_scores(words_of(text, news.lang), words_of(news.text, news.lang))
        for name in (NEWS, f"{NEWS} {news.lang}"):
            add(name, news.site, score)
            for measure, ratio in zip(MEASURES, ratios, strict=True):
                add(f"{name}, {measure}", news.site, ratio)
    return {name: Row(sites[name], np.array(terms[name])) for name in EVERY_ROW if terms[name]}


@dataclass(frozen=True)
class Difference:
    """A row's figure less that of another text of the same pages, and its 95 % interval: sites are
    drawn anew with replacement, all pages of one together (paired bootstrap, Efron 1979)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def difference(ours: Row, theirs: Row) -> Difference:
    names, site = np.unique(ours.sites, return_inverse=True)
    sums = np.zeros((len(names), 4))
    np.add.at(sums, site, np.hstack([ours.terms, theirs.terms]))
    draw = np.random.default_rng(SEED)
    times = draw.multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
    above, below, their_above, their_below = (times @ sums).T
    values = above / np.maximum(below, 1) - their_above / np.maximum(their_below, 1)
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Difference(ours.figure - theirs.figure, float(low), float(high))


def save(every: dict[str, Texts], pages: Pages, path: Path) -> None:
    """One text of one extractor a line."""
    sites = [page.site for page in pages.every()]
    with path.open("w", encoding="utf-8") as out:
        for name, texts in every.items():
            found = (*texts.whole, *texts.partly, *texts.news)
            for site, text in zip(sites, found, strict=True):
                out.write(json.dumps({"by": name, "site": site, "text": text}) + "\n")


def saved(pages: Pages, path: Path) -> dict[str, Texts]:
    """The texts that `save` wrote of the same pages."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        row = json.loads(line)
        found.setdefault(row["by"], []).append((row["site"], row["text"]))
    sites = [page.site for page in pages.every()]
    every = {}
    for name, rows in found.items():
        if [site for site, _ in rows] != sites:
            sys.exit(f"{path}: the texts of {name} are of other pages")
        texts = [text for _, text in rows]
        a, b = len(pages.whole), len(pages.whole) + len(pages.partly)
        every[name] = Texts(texts[:a], texts[a:b], texts[b:])
    return every


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"
