"""The pages of a browsed run: the list with its search, one document, the report, a sample.

No script runs on the pages that are served. The sample is one file for a reader without the run:
its one script hides the documents that do not match, and the policy names that script's hash.
Rules and scores are explained in words and bars from a run's record.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from curate.corpus.decisions import Decision
from curate.documents.documents import CORE
from curate.documents.edits import EDITS, Edit, edits_of
from curate.documents.rejected import REASON_COLUMNS, Reason, reasons_of, rules_of
from curate.inspect.browse.library import PAGE, Library, Query, Row
from curate.inspect.browse.originals import Originals, Run, replay
from curate.inspect.report.store import Position, find_rows, read_rows
from curate.run.records import stages_of
from llmcurate.base.disk.units import format_measure
from llmcurate.base.pages.charts import scaling
from llmcurate.base.pages.html import ids_of, linked, plain, render, source


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
HIDDEN = {n for n, _ in CORE} | {EDITS, "extra", *REASON_COLUMNS}


@dataclass
class Document:
    """row: its columns; kept: whether it stands in corpus/; partners: (decision, text or None) of
    copies; runs: the text with its cuts, None where that is not known."""

    row: dict[str, Any]
    kept: bool
    runs: list[Run] | None
    decisions: list[Decision]
    partners: dict[str, str] = field(default_factory=dict)
    title: str | None = None

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.row.get("id") or "")

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

    def parts(self) -> list[tuple[str, str | None, str | None]]:
        """(text, rule that cut it, rule that put it) of `runs`, CHARS characters in all."""
        parts: list[tuple[str, str | None, str | None]] = []
        room = CHARS
        for run in self.runs or ():
            if room <= 0:
                parts.append(("\u2026", None, None))
                break
            if run.cut and run.put:
                continue
            text = run.text.decode("utf-8", "replace")
            most = min(room, CUT_CHARS) if run.cut else room
            room -= min(len(text), most)
            parts.append((plain(text, most), run.cut, run.put))
        return parts


def load(library: Library, positions: list[Position], originals: Originals) -> list[Document]:
    """The documents at these positions, in their order."""
    import pyarrow.parquet as pq

    names: dict[str, None] = {}
    for path in (*library.store.kept[:1], *library.store.gone[:1]):
        names |= dict.fromkeys(pq.read_schema(path).names)
    rows = read_rows(positions, list(names), 4 << 20)
    documents = []
    kept = {str(p) for p in library.store.kept}
    for position in positions:
        row = rows[position]
        document = Document(row, position[0] in kept, None, library.decisions(row.get("id") or ""))
        document.title = row.get(library.title) if library.title else None
        _cuts(document, position, originals)
        _partners(document, library)
        documents.append(document)
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


# Browsers take `frame-ancestors` from a header only, all else also from a page that is saved.
PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'"
POLICY = f"{PAGE_POLICY}; frame-ancestors 'none'"
MOST_DOCUMENTS = 400  # of a sample


def link(**fields: Any) -> str:
    """The query of a page's address; empty fields are left out."""
    return "?" + urlencode(
        {k: v for k, v in fields.items() if v not in ("", None)}, errors="replace"
    )


def typed(value: float | None) -> str:
    """A number as it was typed."""
    return "" if value is None else f"{value:.15g}"


def address(id: str) -> str:
    """The page of a document, or of all of them for an empty id, as the server has it."""
    return f"/document{link(id=id)}" if id else "/"


def _render(template: str, **values: Any) -> str:
    return render(
        f"browse/{template}.html",
        **{
            "policy": PAGE_POLICY,
            "link": link,
            "address": address,
            "spoken": spoken,
            "most_chars": CHARS,
            **values,
        },
    )


def list_page(library: Library, query: Query, rows: list[Row], more: bool) -> str:
    """The documents that match a query; more: whether others follow."""

    def turn(page: int) -> str:
        fields = asdict(replace(query, page=page)) | {"page": page or ""}
        return link(**fields | {n: typed(fields[n]) for n in ("least", "most")})

    return _render(
        "list",
        library=library,
        recipe=library.record.get("recipe") or "run",
        totals=library.record.get("totals") or {},
        query=query,
        counts=library.counts(query),
        has_report=library.report.is_file(),
        rows=rows,
        first=query.page * PAGE + 1,
        page_size=PAGE,
        previous=turn(query.page - 1) if query.page else "",
        next=turn(query.page + 1) if more else "",
        typed=typed,
        listed=listed,
        nones=[None] * len(library.columns),
    )


def listed(numbers: dict[str, int], more: Iterable[str], chosen: str) -> list[tuple[str, int]]:
    """(value, documents) of a choice, the most frequent first; more: values that may have none;
    chosen: that is listed whatever it is."""
    values = dict.fromkeys([*more, *([chosen] if chosen else [])], 0) | numbers
    return sorted(values.items(), key=lambda item: (-item[1], item[0]))


def document_page(library: Library, document: Document) -> str:
    """One document."""
    return _render("document", document=document, meanings=Meanings.of(library.record))


def report_page(library: Library) -> str | None:
    """The run's report, its ids led to the pages of the documents; None where there is none."""
    try:
        return linked(library.report.read_text(encoding="utf-8"), address)
    except OSError:
        return None


def message_page(message: str) -> str:
    """A page of one line."""
    return _render("message", message=message)


DOCUMENTS, REPORT = "documents.html", "report.html"  # in a folder of static pages


def _anchor(id: str) -> str:
    return "d" + hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:16]


def static_pages(library: Library, each: int) -> dict[str, str]:
    """Pages for a folder, by file name: a sample of documents, those of the report first, and the
    report with its ids led to them."""
    try:
        report = library.report.read_text(encoding="utf-8")
    except OSError:
        report = ""
    ids = ids_of(report)
    pages = {DOCUMENTS: sample_page(library, each, ids, REPORT if report else "")}
    anchors = set(re.findall(r'id="(d[0-9a-f]{16})"', pages[DOCUMENTS]))

    def to(id: str) -> str:
        anchor = _anchor(id)
        return DOCUMENTS if not id else f"{DOCUMENTS}#{anchor}" if anchor in anchors else ""

    return pages | ({REPORT: linked(report, to)} if report else {})


def sample_page(library: Library, each: int, named: Sequence[str] = (), report: str = "") -> str:
    """A bounded sample of the run as one file: of every rule, and of the kept documents, the `each`
    with the least hashes of their ids, so that the same run gives the same file.

    named: ids of documents that are in it too, as far as there is room; report: where the report
    stands, which then has a link.
    """
    from markupsafe import Markup

    sample = library.sample(each)
    where = find_rows(library.store.paths, named)
    positions = dict.fromkeys(where[id] for id in named if id in where)
    positions |= dict.fromkeys(row.position for rows in sample.values() for row in rows)
    chosen = list(positions)[:MOST_DOCUMENTS]
    documents = load(library, chosen, Originals(library.out, stages_of(library.record)))
    waiting = dict(zip(chosen, documents, strict=True))
    groups = [
        (title, [waiting.pop(row.position) for row in rows if row.position in waiting])
        for title, rows in sample.items()
    ]
    groups.append(("others that the report names", list(waiting.values())))
    anchors = {document.id: f"#{_anchor(document.id)}" for document in documents}
    script = source("browse/search.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _render(
        "sample",
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';"
        " form-action 'none'; base-uri 'none'",
        recipe=library.record.get("recipe") or "run",
        each=each,
        number=len(documents),
        groups=[(title, documents) for title, documents in groups if documents],
        report=report,
        anchor=_anchor,
        address=lambda id: anchors.get(id, ""),
        meanings=Meanings.of(library.record),
        script=Markup(script),
    )
