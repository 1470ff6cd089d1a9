"""The pages of `browse`: the list of documents with its facets, one document, the report.

Each page has at most one script, allowed by its hash: keyboard keys for the links. Pages work
without scripts too. Rules and scores are explained from the run's record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
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
from curate.inspect.report.store import Position, read_rows
from llmcurate.base.disk.units import format_measure
from llmcurate.base.pages.charts import scaling
from llmcurate.base.pages.html import linked, own_script, plain, render


def spoken(rule: str) -> str:
    """Return a rule's name `step.rule` as words, such as `gopher_quality: few words`."""
    step, _, name = rule.partition(".")
    return f"{step}: {name.replace('_', ' ')}"


@dataclass(frozen=True)
class Meanings:
    """The meanings of a run's rules and scores in words, with the range of each score."""

    steps: dict[str, str]  # label -> what the step does
    limits: dict[str, float]  # column -> the threshold of the rule that compares it
    ranges: dict[str, tuple[str, float, float]]  # column -> scale, least and greatest value
    columns: dict[str, str]  # rule -> the column whose values it compares with a threshold
    above: dict[str, bool]  # rule -> True if it drops documents above its threshold

    @classmethod
    def of(cls, record: dict[str, Any]) -> Meanings:
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
        """Return where a value lies in the range of its column's chart, from 0 (left) to 1 (right),
        or None if the column has no chart or the value is not a number."""
        if column not in self.ranges or not isinstance(value, (int, float)) or value != value:
            return None
        scale, *ends = self.ranges[column]
        scaled = scaling(scale)
        low, high = map(scaled, ends)
        return min(1.0, max(0.0, (scaled(value) - low) / (high - low))) if high > low else None

    def span(self, column: str) -> str:
        """Return the range of a column's values as text, such as `0 to 12`."""
        return " to ".join(map(format_measure, self.ranges[column][1:]))

    def why(self, reason: Reason) -> str:
        """Return why a rule drops a document, such as `drops if stop words is below 2`, or an empty
        text if the rule has no threshold."""
        if reason.threshold is None or reason.value is None:
            return ""
        above = self.above.get(reason.name)
        if above is None and reason.value != reason.threshold:
            above = reason.value > reason.threshold
        side = {None: "at", True: "above", False: "below"}[above]
        column = self.columns.get(reason.name, "")
        measure = column.partition(".")[2].replace("_", " ") or "its value"
        return f"drops if {measure} is {side} {format_measure(reason.threshold)}"


CHARS = 20_000  # of a text on a page
CUT_CHARS = 2_000  # of a piece that was cut
EXCERPT = 240  # of a text in a list
MOST_CHARS = 4 << 20  # of a text that is read
Part = tuple[str, bool, "str | None", "str | None"]
HIDDEN = {n for n, _ in CORE} | {EDITS, "extra", *REASON_COLUMNS}


@dataclass
class Document:
    """A document of the run, as a page shows it."""

    row: dict[str, Any]  # its columns
    kept: bool  # True if it is in corpus/, False if rejected
    title: str | None
    runs: list[Run] | None = None  # the pieces of its text, including cut ones, if known
    decisions: list[Decision] = field(default_factory=list)
    partners: dict[str, str] = field(default_factory=dict)  # id of a duplicate -> its text

    @property
    def id(self) -> str:
        return str(self.row.get("id") or "")

    @property
    def text(self) -> str:
        return self.row.get("text") or ""

    def rules(self) -> tuple[str, ...]:
        return rules_of(self.reasons())

    def reasons(self) -> list[Reason]:
        return reasons_of(self.row)

    def edits(self) -> list[Edit]:
        return edits_of(self.row)

    def scores(self) -> list[tuple[str, Any]]:
        """Return (column, value) of everything that steps measured on the document."""
        return [
            (key, value)
            for key, value in self.row.items()
            if "." in key and key not in HIDDEN and value not in (None, self.title)
        ]

    def excerpt(self, words: str) -> list[Hit]:
        """Return the text around the first hit, or the text's beginning if there is no hit. `words`
        are the words of a search."""
        return passage(self.text, hits(self.text, words, self.reasons()), EXCERPT)

    def parts(self, words: str = "") -> list[Part]:
        """Return the pieces of the text to show, about CHARS characters in all. A piece is (text,
        True if it is a hit, rule that cut it or None, rule that inserted it or None). If the first
        hit is late in the text, the pieces begin shortly before the hit."""
        spans = hits(self.text, words, self.reasons())
        start = max(0, spans[0][0] - CHARS // 10) if spans and spans[0][0] > CHARS // 2 else 0
        ellipsis: list[Part] = [("\u2026", False, None, None)]
        parts = ellipsis * bool(start)
        room, at = CHARS, 0  # at: position in the text without its cut pieces
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
    """Return the documents at these positions, in this order. Information on their duplicates and
    on passages that the run cut out of them is left empty; the function `load` adds it."""
    paths = (*library.store.kept[:1], *library.store.gone[:1])
    names = {name: None for path in paths for name in read_schema(path).names}
    rows = read_rows(positions, list(names), MOST_CHARS)
    return [
        Document(rows[p], p[0] in library.kept, rows[p].get(library.title or "")) for p in positions
    ]


def load(library: Library, positions: list[Position], originals: Originals) -> list[Document]:
    """Return the documents at these positions, with their duplicates and their cut passages."""
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


SCRIPT, _POLICY = own_script("browse/keys.js", forms=True)
POLICY = f"{_POLICY}; frame-ancestors 'none'"  # which works only in a header


def link(**fields: Any) -> str:
    """Return the query part of a page's address; empty fields are omitted."""
    return "?" + urlencode(
        {k: v for k, v in fields.items() if v not in ("", None)}, errors="replace"
    )


def place(query: Query, **more: Any) -> str:
    """Return the query part of a search's address, with the fields in `more` added or replaced."""
    given = {n: v for n, v in asdict(query).items() if v != getattr(Query, n)}
    return link(**given | {"at": None} | more)


def address(id: str) -> str:
    """Return the address of a document's page, or of the list of all documents if the id is
    empty."""
    return f"/document{link(id=id)}" if id else "/"


def _render(template: str, **values: Any) -> str:
    return render(
        f"browse/{template}.html",
        policy=_POLICY,
        script=SCRIPT,
        link=link,
        place=place,
        address=address,
        spoken=spoken,
        most_chars=CHARS,
        page_size=PAGE,
        **values,
    )


def list_page(library: Library, query: Query) -> str:
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
    """Return (value, number of documents) for the values of a facet, the most frequent first. The
    values `more` and `chosen` are listed even if no document has them."""
    values = dict.fromkeys([*more, *([chosen] if chosen else [])], 0) | numbers
    return sorted(values.items(), key=lambda item: (-item[1], item[0]))


def _neighbours(library: Library, query: Query, id: str) -> tuple[int, str, str]:
    start = max(0, (query.at or 0) - 1)
    near = [name for name, _ in library.places(query, start, 3)]
    own = near.index(id) if id in near else (query.at or 0) - start

    def to(number: int) -> str:
        if not 0 <= number < len(near):
            return ""
        return f"/document{place(query, page='', id=near[number], at=start + number)}#hit"

    return start + own, to(own - 1), to(own + (id in near))


def document_page(library: Library, document: Document, query: Query, token: str) -> str:
    """Return the HTML page of a document. The secret `token` protects the form for labels."""
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
    """Return the run's report, in which ids and rules are links; empty if there is no report."""
    report = library.report.read_text(encoding="utf-8") if library.report.is_file() else ""
    return linked(report, address)


def message_page(message: str) -> str:
    return _render("message", message=message)
