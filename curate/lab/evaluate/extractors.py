"""Evaluation of extractors on pages with known main text: `llmcurate extract-eval`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from curate.documents.documents import Documents
from curate.extract import evaluate as measures
from curate.extract.evaluate import DATE
from curate.formats.compression import CorruptData, decompressed_chunks, open_input
from curate.formats.inputs import InputPlan
from curate.formats.json_objects import parse
from curate.formats.lines import BOM, lines
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader, plan_reading
from curate.inspect.results import Findings
from curate.steps.contracts import Step
from curate.steps.recipe import compose
from llmcurate.base.disk.units import counted, format_count, format_percent
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import OPTIONAL
from llmcurate.base.pages.side_by_side import side_by_side
from llmcurate.base.terminal import Progress, say, table

STATED = {"title": "title", "author": "author", "date": "published", "lang": "lang_hint"}
FIELDS = ("title", "author", "date")  # metadata that is compared
WORST_PAGES = 30
VERDICTS = ("right", "wrong", "missing")
RATIOS = ("precision", "recall", "f1")
MEASURES = (
    *(f"words.{name}" for name in RATIOS),
    *(f"snippets.{name}" for name in RATIOS),
    *(f"{name}.{verdict}" for name in FIELDS for verdict in VERDICTS),
)
# First columns of `Page.sums`. Words: 1 if the gold has a text, then precision, recall and F1.
# Snippets: true positives, false positives, false negatives, true negatives. Fields: verdicts.
_WORDS, _SNIPPETS, _FIELDS, _WIDTH = 0, 4, 8, 8 + len(FIELDS) * len(VERDICTS)

LONGEST_ROW = 64 << 20  # bytes of a line of the gold file
_TEXTS = ("record_id", "url", "text", "page_type", "lang", *FIELDS)


@dataclass(frozen=True)
class Gold:
    """The known facts of a page, each None if not given."""

    record_id: str | None
    url: str | None
    text: str | None  # the whole main text
    with_: tuple[str, ...]  # snippets of the main text
    without: tuple[str, ...]  # snippets of other text
    title: str | None
    author: str | None
    date: str | None  # like 2024-05-31 or 2024-05
    page_type: str | None
    lang: str | None


def record_key(record_id: str) -> str:
    """Return a record's id in lower case, without `<`, `>` and `urn:uuid:`."""
    return record_id.strip().strip("<>").strip().lower().removeprefix("urn:uuid:")


def read_gold(path: str) -> list[Gold]:
    """Return the rows of a JSONL file. Raises UsageError with the number of the first bad line."""
    rows = []
    try:
        with open_input(path) as file:
            numbered = lines(decompressed_chunks(file), 0, None, LONGEST_ROW)
            for number, (_, line, _) in enumerate(numbered, 1):
                if line is None:
                    raise UsageError(f"{path} line {number}: more than {LONGEST_ROW:,} bytes")
                if line.strip():
                    rows.append(_gold(line.removeprefix(BOM), f"{path} line {number}"))
    except CorruptData as error:
        raise UsageError(f"{path}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    if not rows:
        raise UsageError(f"{path} has no rows")
    return rows


def _gold(line: bytes, where: str) -> Gold:
    row = parse(line)
    if isinstance(row, str):
        raise UsageError(f"{where}: {row}")
    texts: dict[str, str | None] = {}
    for name in _TEXTS:
        value = row.get(name)
        if name == "author" and isinstance(value, list) and all(isinstance(v, str) for v in value):
            value = ", ".join(value)
        if not isinstance(value, (str, type(None))):
            raise UsageError(f"{where}: `{name}` must be a string")
        texts[name] = value if name == "text" or value is None else value.strip() or None
    snippets = []
    for name in ("with", "without"):
        value = row.get(name) or []
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise UsageError(f"{where}: `{name}` must be a list of strings")
        snippets.append(tuple(value))
    gold = Gold(**texts, with_=snippets[0], without=snippets[1])
    if gold.record_id is None and gold.url is None:
        raise UsageError(f"{where}: give `record_id` or `url`")
    if gold.text is None and not gold.with_ and not gold.without:
        raise UsageError(f"{where}: give `text`, or snippets in `with` and `without`")
    if gold.date is not None and not DATE.match(gold.date):
        raise UsageError(f"{where}: `date` {gold.date}: write it as 2024-05-31 or 2024-05")
    return gold


Figures = dict[str, list[float | None]]  # {measure: [value, low, high]}, with its interval


@dataclass(frozen=True)
class Group:
    """The figures of each extractor on a group of pages."""

    name: str | None
    pages: int
    sites: int
    texts: int  # pages with known main text
    snippets: int  # number of known snippets
    stated: dict[str, int]  # field -> pages where it is known
    extractors: dict[str, Figures]


@dataclass(frozen=True)
class Site:
    """The extractors' scores on one website."""

    site: str
    pages: int
    lost: float  # sum of 1 - F1 over the pages, for the first extractor
    f1: dict[str, float]  # extractor -> mean F1


@dataclass(frozen=True)
class Score:
    """The score of one extractor on a page. `words` are the ratios of `word_scores`, and `snippets`
    are counts. `title`, `author` and `date` are verdicts; `reason` tells why there is no text."""

    words: dict[str, float] | None = field(metadata=OPTIONAL)
    snippets: dict[str, int] | None = field(metadata=OPTIONAL)
    title: str | None = field(metadata=OPTIONAL)
    author: str | None = field(metadata=OPTIONAL)
    date: str | None = field(metadata=OPTIONAL)
    reason: str | None = field(metadata=OPTIONAL)


@dataclass(frozen=True)
class PageScores:
    id: str
    url: str | None
    site: str
    page_type: str | None
    lang: str | None
    scores: dict[str, Score]


# A page with a low score: score, page, gold and text side by side, text, missing snippets, snippets
# that are not part of the main text.
Worst = tuple[float, PageScores, tuple[str, str] | None, str, list[str], list[str]]


@dataclass
class Page:
    """A page of the input, its gold (the known main text) and the results of the extractors."""

    gold: Gold
    id: str
    url: str | None
    site: str
    lang: str | None
    sums: np.ndarray  # float64[extractors, _WIDTH]: counts behind the measures
    texts: list[str] = field(default_factory=list)  # of the first extractor
    reasons: list[str | None] = field(default_factory=list)  # why there is no text
    verdicts: list[dict[str, str]] = field(default_factory=list)  # per extractor

    def score(self, extractor: int) -> float | None:
        """Return an extractor's score on this page: F1 of words if the main text is known, F1 of
        snippets if only snippets (short passages) are known, None if neither is known."""
        sums = self.sums[extractor]
        if sums[_WORDS]:
            return float(sums[_WORDS + 3])
        counts = [int(n) for n in sums[_SNIPPETS : _SNIPPETS + 4]]
        return measures.snippet_scores(*counts)["f1"] if counts[0] + counts[2] else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"


def span(figure: list[float | None], signed: bool = False) -> str:
    """Return the confidence interval of a figure [value, low, high] as text, such as `0.812 to
    0.834`, or an empty string if not known. With `signed`, positive numbers have a plus sign."""
    ends = [_signed(v) if signed else _number(v) for v in figure[1:]]
    return "" if "-" in ends else " to ".join(ends)


class Evaluation(Findings):
    """The scores of each extractor on the pages that have gold. Raises RunFailed if the library of
    an extractor is missing, and UsageError if no page has gold."""

    NAME = "extract-eval"
    TEMPLATE = "evaluate/extractors.html"
    SHOWN: ClassVar[dict[str, Any]] = {"samples": measures.SAMPLES, "fields": FIELDS, "span": span}
    JSON = (
        "gold", "inputs", "extractors=labels", "settings", "counts", "interval", "all",
        "differences", "page_types", "languages", "sites", "pages=page_scores",
    )  # fmt: skip
    interval: ClassVar[dict[str, Any]] = {  # a bootstrap over sites
        **{"level": measures.LEVEL, "samples": measures.SAMPLES, "seed": measures.SEED},
        "drawn": "sites",
    }

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
            step.identity()  # raises if a library is missing
            self.steps.append(step)
        self.settings = [step.resolved() for step in self.steps]
        self.labels = [str(settings["extractor"]) for settings in self.settings]
        self.gold, self.inputs, self.sets = str(gold), inputs, list(sets)
        rows = read_gold(self.gold)
        read = recipes[0].read
        plan = plan_reading(inputs, read)
        for notice in plan.notices:
            say(notice, quiet)
        self.pages = self._read(rows, plan, read, quiet)
        if not self.pages:
            raise UsageError(f"{gold}: no row matches a page of the input by record_id or url")

    def _read(
        self, rows: list[Gold], plan: InputPlan, read: ReadSettings, quiet: bool
    ) -> list[Page]:
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
        matched_gold: set[int] = set()
        refused: set[int] = set()
        pages: list[Page] = []
        without_gold = repeated_pages = 0

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
                        fresh = gold is not None and id(gold) not in matched_gold
                        without_gold += gold is None
                        repeated_pages += gold is not None and not fresh
                        if fresh:
                            matched_gold.add(id(gold))
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
            "gold_with_refused_page": len(refused - matched_gold),
            "gold_repeated": repeated,
            "pages_without_gold": without_gold,
            "pages_repeated": repeated_pages,
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
            del page.texts[1:]  # only the first extractor's text is shown
        return pages

    @cached_property
    def all(self) -> Group:
        return self._group(None, np.ones(len(self.pages), np.bool_))

    @cached_property
    def page_types(self) -> list[Group]:
        return self._groups([page.gold.page_type for page in self.pages])

    @cached_property
    def languages(self) -> list[Group]:
        return self._groups([page.lang for page in self.pages])

    def _by_site(self, mask: np.ndarray) -> np.ndarray:
        pages = [page for page, chosen in zip(self.pages, mask, strict=True) if chosen]
        sites = {site: n for n, site in enumerate(sorted({page.site for page in pages}))}
        sums = np.zeros((len(sites), len(self.steps), _WIDTH))
        np.add.at(sums, [sites[p.site] for p in pages], np.stack([p.sums for p in pages]))
        return sums

    def _group(self, name: str | None, mask: np.ndarray) -> Group:
        sums = self._by_site(mask)
        value, low, high = measures.bootstrap(sums, measured)
        total = sums.sum(0)[0]
        stated = total[_FIELDS:].reshape(len(FIELDS), len(VERDICTS)).sum(1)
        return Group(
            name,
            int(mask.sum()),
            len(sums),
            int(total[_WORDS]),
            int(total[_SNIPPETS : _SNIPPETS + 4].sum()),
            {key: int(n) for key, n in zip(FIELDS, stated, strict=True)},
            {
                label: _figures(value[nth], low[nth], high[nth])
                for nth, label in enumerate(self.labels)
            },
        )

    def _groups(self, names: list[str | None]) -> list[Group]:
        numbers = Counter(names)
        ordered = sorted(numbers, key=lambda name: (name is None, -numbers[name], name or ""))
        group_of = np.array([name if name is not None else "" for name in names], object)
        none = np.array([name is None for name in names], np.bool_)
        return [
            self._group(name, none if name is None else (group_of == name) & ~none)
            for name in ordered
        ]

    @cached_property
    def differences(self) -> dict[str, Figures]:
        """The figures of each other extractor minus those of the first extractor. The intervals are
        from bootstrap samples of sites. Each sample has the same sites for all extractors."""
        if len(self.steps) < 2:
            return {}

        def minus_first(totals: np.ndarray) -> np.ndarray:
            values = measured(totals)
            return values[:, 1:] - values[:, :1]

        sums = self._by_site(np.ones(len(self.pages), np.bool_))
        value, low, high = measures.bootstrap(sums, minus_first)
        return {
            label: _figures(value[nth], low[nth], high[nth])
            for nth, label in enumerate(self.labels[1:])
        }

    @cached_property
    def sites(self) -> list[Site]:
        """The websites, beginning with those on which the first extractor loses the most F1."""
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
            rows.append(Site(site, len(pages), loss, means))
        return sorted(rows, key=lambda row: (-row.lost, row.site))

    @property
    def page_scores(self) -> list[PageScores]:
        return [self._page(page) for page in self.pages]

    def _page(self, page: Page) -> PageScores:
        scores = {}
        for nth, label in enumerate(self.labels):
            sums, words, snippets = page.sums[nth], None, None
            if sums[_WORDS]:
                ratios = sums[_WORDS + 1 : _SNIPPETS].tolist()
                words = {k: round(v, 6) for k, v in zip(RATIOS, ratios, strict=True)}
            counts = [int(n) for n in sums[_SNIPPETS:_FIELDS]]
            if any(counts):
                snippets = dict(zip(("tp", "fp", "fn", "tn"), counts, strict=True))
            title, author, date = map(page.verdicts[nth].get, FIELDS)
            reason = page.reasons[nth] or None
            scores[label] = Score(words, snippets, title, author, date, reason)
        return PageScores(page.id, page.url, page.site, page.gold.page_type, page.lang, scores)

    def worst(self) -> tuple[list[Worst], list[PageScores]]:
        """Return the pages on which the first extractor's F1 is lowest, and those where it found no
        text."""
        scored = [(page.score(0), page) for page in self.pages]
        imperfect = [(score, page) for score, page in scored if score is not None and score < 1]
        imperfect.sort(key=lambda row: (row[0], -len(row[1].gold.text or ""), row[1].id))
        with_text = [row for row in imperfect if row[1].texts[0].strip()]
        empty = [self._page(page) for _, page in imperfect if not page.texts[0].strip()]
        return [self._differences_of(*row) for row in with_text[:WORST_PAGES]], empty

    def _differences_of(self, score: float, page: Page) -> Worst:
        gold, text = page.gold, page.texts[0]
        squeezed = measures.squeezed(text)
        sides = None if gold.text is None else side_by_side(gold.text, text)
        missing = [s for s in gold.with_ if measures.squeezed(s) not in squeezed]
        extra = [s for s in gold.without if measures.squeezed(s) in squeezed]
        return score, self._page(page), sides, text, missing, extra

    def kinds(self) -> list[tuple[str, str]]:
        """Return (measure, title) for the F1 of words, if the gold (expected results) has texts,
        and for that of snippets, if the gold has snippets."""
        kinds = [(self.all.texts, "words"), (self.all.snippets, "snippets")]
        return [(f"{name}.f1", f"F1 of {name}") for there, name in kinds if there]

    def notes(self) -> list[str]:
        """Return a sentence for each reason why pages, or known main texts (gold), have no
        score."""
        facts = {
            "gold_without_page": "gold rows have no page in the input",
            "gold_with_refused_page": "of these rows have a page that cannot be read completely",
            "gold_repeated": "gold rows repeat the page of an earlier row",
            "pages_without_gold": "pages have no gold",
            "pages_repeated": "pages repeat a page that was scored",
        }
        return [f"{n:,} {what}" for name, what in facts.items() if (n := self.counts[name])]

    def text(self) -> str:
        everything = self.all
        shown = [f"{counted(everything.pages, 'page')} of {everything.sites:,} sites"]
        shown += self.notes()
        for measure, title in self.kinds():
            family = measure.partition(".")[0]
            head = (title, "precision", "recall", "F1", "95 % interval")
            rows = []
            for label, figures in everything.extractors.items():
                ratios = [_number(figures[f"{family}.{name}"][0]) for name in RATIOS]
                rows.append((label, *ratios, span(figures[measure])))
            for label, figures in self.differences.items():
                ratios = [_signed(figures[f"{family}.{name}"][0]) for name in RATIOS]
                named = f"{label} minus {self.labels[0]}"
                rows.append((named, *ratios, span(figures[measure], signed=True)))
            shown += ["", *table(head, rows)]
        groups = self.page_types
        if len(groups) > 1:
            for measure, title in self.kinds():
                columns = (title, "pages", *self.labels)
                cells = [
                    (
                        str(group.name or "(not stated)"),
                        format_count(group.pages),
                        *(_number(v[measure][0]) for v in group.extractors.values()),
                    )
                    for group in groups
                ]
                shown += ["", *table(columns, cells)]
        shown += self._metadata()
        return "\n".join(shown)

    def _metadata(self) -> list[str]:
        rows = []
        for label, figures in self.all.extractors.items():
            if any(figures[f"{name}.missing"][0] not in (None, 1.0) for name in FIELDS):
                for name in FIELDS:
                    shares = [format_percent(figures[f"{name}.{v}"][0]) for v in VERDICTS]
                    stated = format_count(self.all.stated[name])
                    rows.append((f"{name} by {label}", stated, *shares))
        return ["", *table(("metadata", "stated", *VERDICTS), rows)] if rows else []


def _stated(docs: Documents) -> list[dict[str, str | None]]:
    columns = {name: f"extract.{column}" for name, column in STATED.items()} | {"title": "title"}
    values = [
        docs.table[name].to_pylist() if name in docs.table.column_names else [None] * len(docs)
        for name in columns.values()
    ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _verdicts(gold: Gold, stated: dict[str, str | None]) -> dict[str, str]:
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
    """Return the measures, float64[..., len(MEASURES)]. `totals`, float64[..., _WIDTH], are arrays
    `Page.sums` (counts of a page) added up over pages. A measure of 0/0 is NaN."""
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


def _figures(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> Figures:
    rows = np.stack([value, low, high], -1)
    return {
        name: [None if np.isnan(v) else round(float(v), 6) for v in row]
        for name, row in zip(MEASURES, rows, strict=True)
    }
