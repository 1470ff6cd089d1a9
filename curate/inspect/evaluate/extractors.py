"""The evaluation of extractors on pages whose main text is known: `llmcurate extract-eval`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.documents.documents import Documents
from curate.extract import evaluate as measures
from curate.formats.inputs import InputPlan
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader
from curate.formats.subset import plan_reading
from curate.inspect.evaluate.extractors_gold import FIELDS, Gold, read_gold, record_key
from curate.steps.contracts import Step
from curate.steps.recipe import compose
from llmcurate.base.errors import UsageError
from llmcurate.base.pages.side_by_side import side_by_side
from llmcurate.base.terminal.progress import Progress, say

WORST_PAGES = 30
VERDICTS = ("right", "wrong", "missing")
RATIOS = ("precision", "recall", "f1")
MEASURES = (
    *(f"words.{name}" for name in RATIOS),
    *(f"snippets.{name}" for name in RATIOS),
    *(f"{name}.{verdict}" for name in FIELDS for verdict in VERDICTS),
)
# What a page adds up to: pages with a text, and their words' precision, recall and F1; snippets'
# true positives, false positives, false negatives, true negatives; verdicts on each field.
_WORDS, _SNIPPETS, _FIELDS, _WIDTH = 0, 4, 8, 8 + len(FIELDS) * len(VERDICTS)


@dataclass
class Page:
    """A page of the input and its gold. texts: by extractor; reasons: why an extractor gave none;
    sums: float64[extractors, _WIDTH]."""

    gold: Gold
    id: str
    url: str | None
    site: str
    lang: str | None
    sums: np.ndarray
    texts: list[str] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    verdicts: list[dict[str, str]] = field(default_factory=list)

    def score(self, extractor: int) -> float | None:
        """F1 of words, of snippets where the gold has no text, None where it has neither."""
        sums = self.sums[extractor]
        if sums[_WORDS]:
            return float(sums[_WORDS + 3])
        counts = [int(n) for n in sums[_SNIPPETS : _SNIPPETS + 4]]
        return measures.snippet_scores(*counts)["f1"] if counts[0] + counts[2] else None


class Evaluation:
    """The pages that have gold, extracted by each extractor, and their figures.

    RunFailed where an extractor's library is absent; UsageError where no page has gold.
    """

    def __init__(
        self,
        gold: str | Path,
        inputs: list[str],
        extractors: tuple[str, ...] = ("blocks",),
        sets: tuple[str, ...] = (),
        quiet: bool = False,
    ) -> None:
        recipes = [
            compose("extract-eval", [("extract", {"extractor": name})], sets)
            for name in dict.fromkeys(extractors)
        ]
        self.steps: list[Step] = []
        for recipe in recipes:
            (step,) = recipe.document_steps
            assert isinstance(step, Step)
            step.identity()  # fails where a library is absent
            self.steps.append(step)
        self.labels = [str(step.resolved()["extractor"]) for step in self.steps]
        self.gold, self.inputs, self.sets = str(gold), inputs, list(sets)
        rows = read_gold(self.gold)
        read = recipes[0].read
        plan = plan_reading(inputs, read)
        for notice in plan.notices:
            say(notice, quiet)
        self.pages = self._read(rows, plan, read, quiet)
        if not self.pages:
            raise UsageError(f"no page of the input has gold in {gold} (by record_id or url)")

    def _read(
        self, rows: list[Gold], plan: InputPlan, read: ReadSettings, quiet: bool
    ) -> list[Page]:
        """The pages with gold, in the input's order; `self.counts` says what else was met."""
        by_id: dict[str, Gold] = {}
        by_url: dict[str, Gold] = {}
        repeated = 0
        for row in rows:
            index, key = (
                (by_url, row.url) if row.record_id is None else (by_id, record_key(row.record_id))
            )
            assert key is not None
            repeated += key in index
            index.setdefault(key, row)
        met: set[int] = set()
        refused: set[int] = set()
        pages: list[Page] = []
        others = copies = 0

        def gold_of(docs: Documents) -> list[Gold | None]:
            ids, urls = (docs.table[name].to_pylist() for name in ("id", "url"))
            pairs = zip(ids, urls, strict=True)
            return [by_id.get(record_key(name)) or by_url.get(url) for name, url in pairs]

        with Progress("scoring pages", len(by_id) + len(by_url), quiet) as progress:
            for part in range(len(plan.partitions)):
                for batch in PartitionReader(plan, part, read):
                    if batch.refused is not None:
                        refused.update(id(g) for g in gold_of(batch.refused) if g is not None)
                    golds = gold_of(batch.docs)
                    keep = []
                    for gold in golds:
                        fresh = gold is not None and id(gold) not in met
                        others += gold is None
                        copies += gold is not None and not fresh
                        if fresh:
                            met.add(id(gold))
                        keep.append(fresh)
                    docs = Documents(batch.docs.table.filter(pa.array(keep, pa.bool_())))
                    kept = [g for g, k in zip(golds, keep, strict=True) if k and g is not None]
                    if kept:
                        pages += self._scored(docs, kept)
                    progress.update(len(pages))
        self.counts = {
            "gold": len(rows),
            "pages": len(pages),
            "sites": len({page.site for page in pages}),
            "gold_without_page": len(by_id) + len(by_url) - len(pages),
            "gold_with_refused_page": len(refused - met),
            "gold_repeated": repeated,
            "pages_without_gold": others,
            "pages_repeated": copies,
        }
        return pages

    def _scored(self, docs: Documents, golds: list[Gold]) -> list[Page]:
        ids, urls, langs = (docs.table[name].to_pylist() for name in ("id", "url", "lang"))
        pages = [
            Page(
                gold=gold,
                id=ids[row],
                url=urls[row],
                site=measures.site_of(gold.url or urls[row] or ids[row]),
                lang=gold.lang or langs[row],
                sums=np.zeros((len(self.steps), _WIDTH)),
            )
            for row, gold in enumerate(golds)
        ]
        gold_words = [Counter(measures.words(gold.text or "")) for gold in golds]
        for nth, step in enumerate(self.steps):
            result = step.apply(docs.within("extract"))
            reasons: dict[int, str] = {}
            for mark in result.drops:
                reasons.update(dict.fromkeys(mark.rows.tolist(), mark.rule))
            texts = result.text.to_pylist()
            stated = _stated(result)
            for row, page in enumerate(pages):
                page.texts.append(texts[row] or "")
                page.reasons.append(reasons.get(row))
                page.lang = page.lang or stated[row]["lang"]
                page.verdicts.append(_verdicts(page.gold, stated[row]))
                page.sums[nth] = _sums(page, nth, gold_words[row])
        for page in pages:
            page.lang = re.split("[-_,]", page.lang)[0].strip().lower() if page.lang else None
            del page.texts[1:]  # the page shows the first extractor's alone
        return pages

    def dump(self) -> dict[str, Any]:
        """The content of extract-eval.json: figures of all pages and of groups, and every page."""
        everything = np.ones(len(self.pages), np.bool_)
        return {
            "gold": self.gold,
            "inputs": self.inputs,
            "extractors": self.labels,
            "settings": [step.resolved() for step in self.steps],
            "counts": self.counts,
            "interval": {
                "level": measures.LEVEL,
                "samples": measures.SAMPLES,
                "seed": measures.SEED,
                "drawn": "sites",
            },
            "all": self._group(None, everything),
            "differences": self._differences(),
            "page_types": self._groups([page.gold.page_type for page in self.pages]),
            "languages": self._groups([page.lang for page in self.pages]),
            "sites": self._sites(),
            "pages": [self._page(page) for page in self.pages],
        }

    def _by_site(self, mask: np.ndarray) -> np.ndarray:
        """float64[sites, extractors, _WIDTH], the sites in the order of their names."""
        pages = [page for page, take in zip(self.pages, mask, strict=True) if take]
        sites = {site: n for n, site in enumerate(sorted({page.site for page in pages}))}
        sums = np.zeros((len(sites), len(self.steps), _WIDTH))
        np.add.at(sums, [sites[p.site] for p in pages], np.stack([p.sums for p in pages]))
        return sums

    def _group(self, name: str | None, mask: np.ndarray) -> dict[str, Any]:
        """Figures of some pages: of each extractor by measure, with the ends of the intervals."""
        sums = self._by_site(mask)
        value, low, high = measures.bootstrap(sums, measured)
        total = sums.sum(0)[0]
        stated = total[_FIELDS:].reshape(len(FIELDS), len(VERDICTS)).sum(1)
        return {
            "name": name,
            "pages": int(mask.sum()),
            "sites": len(sums),
            "texts": int(total[_WORDS]),
            "snippets": int(total[_SNIPPETS : _SNIPPETS + 4].sum()),
            "stated": {key: int(n) for key, n in zip(FIELDS, stated, strict=True)},
            "extractors": {
                label: _figures(value[nth], low[nth], high[nth])
                for nth, label in enumerate(self.labels)
            },
        }

    def _groups(self, names: list[str | None]) -> list[dict[str, Any]]:
        """One group a name, those with the most pages first; pages without a name come last."""
        numbers = Counter(names)
        ordered = sorted(numbers, key=lambda name: (name is None, -numbers[name], name or ""))
        group_of = np.array([name if name is not None else "" for name in names], object)
        none = np.array([name is None for name in names], np.bool_)
        return [
            self._group(name, none if name is None else (group_of == name) & ~none)
            for name in ordered
        ]

    def _differences(self) -> dict[str, dict[str, Any]]:
        """By extractor but the first: its figures less the first's, drawn from the same sites."""
        if len(self.steps) < 2:
            return {}

        def less(totals: np.ndarray) -> np.ndarray:
            values = measured(totals)
            return values[:, 1:] - values[:, :1]

        sums = self._by_site(np.ones(len(self.pages), np.bool_))
        value, low, high = measures.bootstrap(sums, less)
        return {
            label: _figures(value[nth], low[nth], high[nth])
            for nth, label in enumerate(self.labels[1:])
        }

    def _sites(self) -> list[dict[str, Any]]:
        """Sites by what the first extractor loses on them: the sum of 1 - F1 over their pages."""
        sites: dict[str, list[Page]] = {}
        for page in self.pages:
            if page.score(0) is not None:
                sites.setdefault(page.site, []).append(page)
        rows = []
        for site, pages in sites.items():
            each = [[page.score(nth) or 0.0 for page in pages] for nth in range(len(self.steps))]
            means = {
                label: round(sum(scores) / len(pages), 6)
                for label, scores in zip(self.labels, each, strict=True)
            }
            loss = round(len(pages) - sum(each[0]), 6)
            rows.append({"site": site, "pages": len(pages), "lost": loss, "f1": means})
        return sorted(rows, key=lambda row: (-row["lost"], row["site"]))

    def _page(self, page: Page) -> dict[str, Any]:
        """The scores of a page by extractor."""
        scores = {}
        for nth, label in enumerate(self.labels):
            sums = page.sums[nth]
            row: dict[str, Any] = {}
            if sums[_WORDS]:
                ratios = sums[_WORDS + 1 : _SNIPPETS].tolist()
                row["words"] = {k: round(v, 6) for k, v in zip(RATIOS, ratios, strict=True)}
            counts = [int(n) for n in sums[_SNIPPETS:_FIELDS]]
            if any(counts):
                row["snippets"] = dict(zip(("tp", "fp", "fn", "tn"), counts, strict=True))
            row |= page.verdicts[nth]
            if page.reasons[nth]:
                row["reason"] = page.reasons[nth]
            scores[label] = row
        named = {"id": page.id, "url": page.url, "site": page.site}
        return {**named, "page_type": page.gold.page_type, "lang": page.lang, "scores": scores}

    def worst(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The pages with the lowest F1 of the first extractor that is not 1, those with more gold
        first: (pages of which it made a text, with what differs; pages of which it made none)."""
        scored = [(page.score(0), page) for page in self.pages]
        imperfect = [(score, page) for score, page in scored if score is not None and score < 1]
        imperfect.sort(key=lambda row: (row[0], -len(row[1].gold.text or ""), row[1].id))
        with_text = [row for row in imperfect if row[1].texts[0].strip()]
        empty = [self._page(page) for _, page in imperfect if not page.texts[0].strip()]
        return [self._differences_of(*row) for row in with_text[:WORST_PAGES]], empty

    def _differences_of(self, score: float, page: Page) -> dict[str, Any]:
        gold, text = page.gold, page.texts[0]
        squeezed = measures.squeezed(text)
        return {
            "score": score,
            "page": self._page(page),
            "sides": None if gold.text is None else side_by_side(gold.text, text),
            "text": text,
            "missing": [s for s in gold.with_ if measures.squeezed(s) not in squeezed],
            "extra": [s for s in gold.without if measures.squeezed(s) in squeezed],
        }


def _stated(docs: Documents) -> list[dict[str, Any]]:
    """What the extractor read of the pages' own words: title, author, date, lang; None for none."""
    columns = {"title": "title", "author": "author", "date": "published", "lang": "lang_hint"}
    values = [
        docs.table[f"extract.{name}"].to_pylist()
        if f"extract.{name}" in docs.table.column_names
        else [None] * len(docs)
        for name in columns.values()
    ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _verdicts(gold: Gold, stated: dict[str, Any]) -> dict[str, str]:
    """By field that the gold states: right, wrong or missing."""
    same: dict[str, Callable[[Any, str], bool]] = {
        "title": measures.same_title,
        "author": measures.same_author,
        "date": measures.same_date,
    }
    verdicts = {}
    for name in FIELDS:
        right_value, value = getattr(gold, name), stated[name]
        if right_value is not None:
            right = value is not None and same[name](value, right_value)
            verdicts[name] = "right" if right else "wrong" if value is not None else "missing"
    return verdicts


def _sums(page: Page, nth: int, gold_words: Counter[str]) -> np.ndarray:
    """float64[_WIDTH]: what a page adds to the sums of an extractor."""
    sums = np.zeros(_WIDTH)
    text = page.texts[nth]
    if page.gold.text is not None:
        scores = measures.word_scores(Counter(measures.words(text)), gold_words)
        sums[_WORDS:_SNIPPETS] = 1, *scores
    counts = measures.snippet_counts(text, page.gold.with_, page.gold.without)
    sums[_SNIPPETS:_FIELDS] = counts
    for place, name in enumerate(FIELDS):
        verdict = page.verdicts[nth].get(name)
        if verdict is not None:
            sums[_FIELDS + place * len(VERDICTS) + VERDICTS.index(verdict)] = 1
    return sums


def measured(totals: np.ndarray) -> np.ndarray:
    """float64[..., _WIDTH] of sums to float64[..., len(MEASURES)]; NaN where there is nothing."""
    pages, ratios = totals[..., _WORDS : _WORDS + 1], totals[..., _WORDS + 1 : _SNIPPETS]
    tp, fp, fn, _ = (totals[..., _SNIPPETS + k] for k in range(4))
    verdicts = totals[..., _FIELDS:].reshape(*totals.shape[:-1], len(FIELDS), len(VERDICTS))
    with np.errstate(divide="ignore", invalid="ignore"):
        words = ratios / pages
        snippets = np.stack([tp / (tp + fp), tp / (tp + fn), 2 * tp / (2 * tp + fp + fn)], -1)
        shares = verdicts / verdicts.sum(-1, keepdims=True)
    flat = shares.reshape(*totals.shape[:-1], len(FIELDS) * len(VERDICTS))
    values: np.ndarray = np.concatenate([words, snippets, flat], -1)
    return values


def _figures(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> dict[str, Any]:
    """{measure: [value, low, high]}; None for what is NaN."""
    rows = np.stack([value, low, high], -1)
    return {
        name: [None if np.isnan(v) else round(float(v), 6) for v in row]
        for name, row in zip(MEASURES, rows, strict=True)
    }
