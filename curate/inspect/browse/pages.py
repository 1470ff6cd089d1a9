"""The pages of a browsed run: the list with its facets, one document, the report, a sample.

One script of ours runs on a page, and the policy names its hash: keys for the links of the pages
that are served, and a search in the sample, one file for a reader without the run. Without scripts
all is there but these. Rules and scores are explained in words and bars from a run's record.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from curate.corpus.decisions import Decision
from curate.documents.attributes import read_schema
from curate.documents.documents import CORE
from curate.documents.edits import EDITS, Edit, edits_of
from curate.documents.rejected import REASON_COLUMNS, Reason, reasons_of, rules_of
from curate.inspect.browse.hits import Hit, divided, hits, passage
from curate.inspect.browse.library import PAGE, Library, Query
from curate.inspect.browse.originals import Originals, Run, replay
from curate.inspect.report.store import Position, find_rows, read_rows
from curate.run.records import stages_of
from llmcurate.base.disk.units import format_measure
from llmcurate.base.pages.charts import scaling
from llmcurate.base.pages.html import ids_of, linked, own_script, plain, render


def spoken(rule: str) -> str:
    """`step.rule` as words: `gopher_quality: few words`."""
    step, _, name = rule.partition(".")
    return f"{step}: {name.replace('_', ' ')}"


@dataclass(frozen=True)
class Meanings:
    """What a run's record says of its rules and scores: in words, and as ranges of values."""

    steps: dict[str, str]  # label -> what the step does
    limits: dict[str, float]  # column -> a rule's limit on it
    ranges: dict[str, tuple[str, float, float]]  # column -> scale, least and greatest value
    columns: dict[str, str]  # rule -> the column that it compares
    above: dict[str, bool]  # rule -> whether it drops what is above its limit

    @classmethod
    def of(cls, record: dict[str, Any]) -> Meanings:
        """Return those of a run.json."""
        figures = record.get("figures") or {}
        rules = figures.get("rules") or {}
        limited = [r for r in rules.values() if r.get("column")]
        charts = {r["column"]: r["histogram"] for r in limited if "histogram" in r}
        charts |= figures.get("measures") or {}
        return cls(
            {s["label"]: s.get("about", "") for s in record.get("steps", ())},
            {r["column"]: r["threshold"] for r in limited if "threshold" in r},
            {n: (c["scale"], c["edges"][0], c["edges"][-1]) for n, c in charts.items()},
            {name: r["column"] for name, r in rules.items() if r.get("column")},
            {name: r["above"] for name, r in rules.items() if r.get("above") is not None},
        )

    def place(self, column: str, value: Any) -> float | None:
        """How far a value is from the least to the greatest one of the column's chart, 0 to 1; None
        where that is not known."""
        if column not in self.ranges or not isinstance(value, (int, float)) or value != value:
            return None
        scale, *ends = self.ranges[column]
        scaled = scaling(scale)
        low, high = map(scaled, ends)
        return min(1.0, max(0.0, (scaled(value) - low) / (high - low))) if high > low else None

    def span(self, column: str) -> str:
        """`0 to 12`: the least and the greatest value of the column's chart."""
        return " to ".join(map(format_measure, self.ranges[column][1:]))

    def why(self, reason: Reason) -> str:
        """The rule's condition, as `drops where stop words are below 2`; empty where no limit
        decides."""
        if reason.threshold is None or reason.value is None:
            return ""
        above = self.above.get(reason.name)
        if above is None and reason.value != reason.threshold:
            above = reason.value > reason.threshold
        side = {None: "at", True: "above", False: "below"}[above]
        column = self.columns.get(reason.name, "")
        measure = column.partition(".")[2].replace("_", " ") or "its value"
        return f"drops where {measure} is {side} {format_measure(reason.threshold)}"


CHARS = 20_000  # of a text on a page
CUT_CHARS = 2_000  # of a piece that was cut
EXCERPT = 240  # of a text in a list
MOST_CHARS = 4 << 20  # of a text that is looked at
Part = tuple[str, bool, "str | None", "str | None"]
HIDDEN = {n for n, _ in CORE} | {EDITS, "extra", *REASON_COLUMNS}


@dataclass
class Document:
    """row: its columns; kept: whether it stands in corpus/; title: of its page; partners: texts of
    copies by id; runs: the text with its cuts, None where that is not known."""

    row: dict[str, Any]
    kept: bool
    title: str | None
    runs: list[Run] | None = None
    decisions: list[Decision] = field(default_factory=list)
    partners: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.row.get("id") or "")

    @property
    def text(self) -> str:
        """Its text as it is now."""
        return self.row.get("text") or ""

    def rules(self) -> tuple[str, ...]:
        """The rules that marked it, as `step.rule`."""
        return rules_of(self.reasons())

    def reasons(self) -> list[Reason]:
        """Why it was rejected, the first reason first."""
        return reasons_of(self.row)

    def edits(self) -> list[Edit]:
        """What steps cut or replaced in its text."""
        return edits_of(self.row)

    def scores(self) -> list[tuple[str, Any]]:
        """(column, value) of what steps measured."""
        return [
            (key, value)
            for key, value in self.row.items()
            if "." in key and key not in HIDDEN and value not in (None, self.title)
        ]

    def excerpt(self, words: str) -> list[Hit]:
        """The text around its first hit, or its beginning. words: of a search."""
        return passage(self.text, hits(self.text, words, self.reasons()), EXCERPT)

    def parts(self, words: str = "") -> list[Part]:
        """(text, whether it is a hit, rule that cut it, rule that put it), cuts where these are
        known: CHARS characters in all, from a little before the first hit where that is far
        behind. words: of a search."""
        spans = hits(self.text, words, self.reasons())
        start = max(0, spans[0][0] - CHARS // 10) if spans and spans[0][0] > CHARS // 2 else 0
        ellipsis: list[Part] = [("\u2026", False, None, None)]
        parts = ellipsis * bool(start)
        room, at = CHARS, 0  # at: of the text as it is now
        for run in [Run(self.text.encode())] if self.runs is None else self.runs:
            if run.cut and (run.put or at < start):
                continue
            piece = run.text.decode("utf-8", "replace")
            low = 0 if run.cut else max(0, start - at)
            high = min(len(piece), low + min(room, CUT_CHARS if run.cut else CHARS))
            spans_here = [] if run.cut else [(a - at, b - at) for a, b in spans]
            for shown, is_hit in divided(piece, low, high, spans_here):
                parts.append((plain(shown, CHARS), is_hit, run.cut, run.put))
            room -= max(0, high - low)
            at += 0 if run.cut else len(piece)
            if low <= high < len(piece):
                parts += ellipsis
            if room <= 0:
                break
        return parts


def read(library: Library, positions: list[Position]) -> list[Document]:
    """The documents at these positions, in their order, as far as their rows tell."""
    paths = (*library.store.kept[:1], *library.store.gone[:1])
    names = {name: None for path in paths for name in read_schema(path).names}
    rows = read_rows(positions, list(names), MOST_CHARS)
    return [
        Document(rows[p], p[0] in library.kept, rows[p].get(library.title or "")) for p in positions
    ]


def load(library: Library, positions: list[Position], originals: Originals) -> list[Document]:
    """The documents at these positions, with their cuts and copies."""
    documents = read(library, positions)
    for document, position in zip(documents, positions, strict=True):
        document.decisions = library.decisions(document.id)
        _cuts(document, position, originals)
        _partners(document, library)
    return documents


def _cuts(document: Document, position: Position, originals: Originals) -> None:
    row = document.row
    edits = [e for e in edits_of(row) if document.kept or e.step != row.get("step")]
    if not edits or row.get("text") is None:
        return
    original = originals.find(position, row["id"], row["text"], edits)
    if original is not None:
        document.runs = replay(original, edits, row["text"].encode("utf-8", "replace"))


def _partners(document: Document, library: Library) -> None:
    """Texts of those it was found to be a copy of, and else of some of its cluster."""
    own_id = document.row.get("id") or ""
    ids: dict[str, None] = {}
    for d in document.decisions[:20]:
        if d.partner_id and d.partner_id != own_id and not d.partner_corpus:
            ids[d.partner_id] = None
    for d in document.decisions[:3]:
        if d.cluster is not None and d.span_start is None and len(ids) < 3:
            ids |= dict.fromkeys(library.members(d.method, d.cluster, own_id)[:3])
    chosen = list(ids)[:6]
    where = {i: library.position(i) for i in chosen}
    rows = read_rows([w for w in where.values() if w], ["text"], CHARS)
    document.partners = {i: rows[w].get("text") or "" for i, w in where.items() if w}


KEYS, SEARCH = "browse/keys.js", "browse/search.js"  # scripts


# Browsers take `frame-ancestors` from a header only, all else also from a page that is saved.
POLICY = f"{own_script(KEYS, forms=True)[1]}; frame-ancestors 'none'"
MOST_DOCUMENTS = 400  # of a sample


def link(**fields: Any) -> str:
    """The query of a page's address; empty fields are left out."""
    return "?" + urlencode(
        {k: v for k, v in fields.items() if v not in ("", None)}, errors="replace"
    )


def place(query: Query, **more: Any) -> str:
    """The query of a page's address, with further fields or in place of its own."""
    given = {n: v for n, v in asdict(query).items() if v != getattr(Query, n)}
    return link(**given | {"at": None} | more)


def address(id: str) -> str:
    """The page of a document, or of all of them for an empty id, as the server has it."""
    return f"/document{link(id=id)}" if id else "/"


def _render(template: str, name: str = KEYS, **values: Any) -> str:
    script, policy = own_script(name, forms=name == KEYS)
    return render(
        f"browse/{template}.html",
        **{
            "policy": policy,
            "script": script,
            "link": link,
            "place": place,
            "address": address,
            "spoken": spoken,
            "most_chars": CHARS,
            "page_size": PAGE,
            **values,
        },
    )


def list_page(library: Library, query: Query) -> str:
    """The documents that match a query."""
    places = library.places(query, query.page * PAGE, PAGE + 1)
    return _render(
        "list",
        library=library,
        query=query,
        documents=read(library, [position for _, position in places[:PAGE]]),
        more=len(places) > PAGE,
        listed=listed,
    )


def listed(numbers: dict[str, int], more: Iterable[str], chosen: str) -> list[tuple[str, int]]:
    """(value, documents) of a choice, the most frequent first; more: values that may have none;
    chosen: that is listed whatever it is."""
    values = dict.fromkeys([*more, *([chosen] if chosen else [])], 0) | numbers
    return sorted(values.items(), key=lambda item: (-item[1], item[0]))


def _neighbours(library: Library, query: Query, id: str) -> tuple[int, str, str]:
    """(number of a document in its list, addresses of the documents before and behind it). Labels
    may have moved it since the list was made, or out of it."""
    start = max(0, (query.at or 0) - 1)
    near = [name for name, _ in library.places(query, start, 3)]
    own = near.index(id) if id in near else (query.at or 0) - start

    def to(number: int) -> str:
        if not 0 <= number < len(near):
            return ""
        return f"/document{place(query, page='', id=near[number], at=start + number)}#hit"

    return start + own, to(own - 1), to(own + (id in near))


def document_page(library: Library, document: Document, query: Query, token: str) -> str:
    """One document, in the list of a query where that has its number; token: of the form for
    labels."""
    return _render(
        "document",
        library=library,
        document=document,
        meanings=Meanings.of(library.record),
        query=query,
        turn=None if query.at is None else _neighbours(library, query, document.id),
        token=token,
    )


def report_page(library: Library) -> str:
    """The run's report, its ids and rules led to the pages of documents; empty without one."""
    report = library.report.read_text(encoding="utf-8") if library.report.is_file() else ""
    return linked(report, address)


def message_page(message: str) -> str:
    """A page of one line."""
    return _render("message", message=message)


DOCUMENTS, REPORT = "documents.html", "report.html"  # in a folder of static pages


def _anchor(id: str) -> str:
    return "d" + hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:16]


def static_pages(library: Library, each: int, target: Path) -> dict[Path, str]:
    """The pages of a sample: one, if the target is an .html file; in a folder also the report, its
    ids led to the documents, of which those that it names come first."""
    if target.suffix.lower() in (".html", ".htm"):
        return {target: sample_page(library, each)}
    report = library.report.read_text(encoding="utf-8") if library.report.is_file() else ""
    documents = sample_page(library, each, ids_of(report), REPORT if report else "")
    anchors = set(re.findall(r'id="(d[0-9a-f]{16})"', documents))

    def to(name: str) -> str:
        anchor = _anchor(name)
        return DOCUMENTS if not name else f"{DOCUMENTS}#{anchor}" if anchor in anchors else ""

    pages = {DOCUMENTS: documents} | ({REPORT: linked(report, to)} if report else {})
    return {target / name: page for name, page in pages.items()}


def sample_page(library: Library, each: int, named: Sequence[str] = (), report: str = "") -> str:
    """A bounded sample of the run as one file: of every rule, and of the kept documents, the `each`
    with the least hashes of their ids, so that the same run gives the same file.

    named: ids of documents that are in it too, as far as there is room; report: where the report
    stands, which then has a link.
    """
    sample = library.sample(each)
    where = find_rows(library.store.paths, named)
    positions = dict.fromkeys(where[id] for id in named if id in where)
    positions |= dict.fromkeys(position for some in sample.values() for position in some)
    chosen = list(positions)[:MOST_DOCUMENTS]
    documents = load(library, chosen, Originals(library.out, stages_of(library.record)))
    waiting = dict(zip(chosen, documents, strict=True))
    groups = [
        (title, [waiting.pop(position) for position in some if position in waiting])
        for title, some in sample.items()
    ]
    groups.append(("others that the report names", list(waiting.values())))
    anchors = {document.id: f"#{_anchor(document.id)}" for document in documents}
    return _render(
        "sample",
        SEARCH,
        recipe=library.record.get("recipe") or "run",
        each=each,
        number=len(documents),
        groups=[(title, documents) for title, documents in groups if documents],
        report=report,
        anchor=_anchor,
        address=lambda id: anchors.get(id, ""),
        meanings=Meanings.of(library.record),
    )
