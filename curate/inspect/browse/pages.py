"""The pages of a browsed run: the list with its search, one document, a message, a sample.

No script runs on the pages that are served. The sample is one file for a reader without the run:
its one script hides the documents that do not match, and the policy names that script's hash.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from curate.documents.documents import CORE
from curate.documents.edits import EDITS, Edit, edits_of
from curate.documents.rejected import REASON_COLUMNS, Reason, reasons_of, rules_of
from curate.inspect.browse.library import PAGE, Library, Query, Row
from curate.inspect.browse.originals import Originals, Run, replay
from curate.inspect.report.store import Position, read_rows
from curate.pages.html import plain
from curate.pages.templates import render, source

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
    decisions: list[dict[str, Any]]
    partners: dict[str, str] = field(default_factory=dict)

    def rules(self) -> tuple[str, ...]:
        """The rules that marked it, as `step.rule`."""
        return rules_of(self.row)

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
            if "." in key and key not in HIDDEN and value is not None
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
    everything = _columns(library)
    rows = read_rows(positions, everything, 4 << 20)
    documents = []
    kept = {str(p) for p in library.store.kept}
    for position in positions:
        row = rows[position]
        document = Document(row, position[0] in kept, None, library.partners(row.get("id") or ""))
        _cuts(document, position, originals)
        _partners(document, library)
        documents.append(document)
    return documents


def _columns(library: Library) -> list[str]:
    import pyarrow.parquet as pq

    names: dict[str, None] = {}
    for path in (*library.store.kept[:1], *library.store.gone[:1]):
        names |= dict.fromkeys(pq.read_schema(path).names)
    return list(names)


def _cuts(document: Document, position: Position, originals: Originals) -> None:
    row = document.row
    edits = [e for e in edits_of(row) if document.kept or e.step != row.get("step")]
    if not edits or row.get("text") is None:
        return
    original = originals.find(position, row, edits)
    if original is not None:
        document.runs = replay(original, edits, row["text"].encode("utf-8", "replace"))


def _partners(document: Document, library: Library) -> None:
    """Texts of those it was found to be a copy of, and else of some of its cluster."""
    own = document.row.get("id") or ""
    ids: dict[str, None] = {}
    for d in document.decisions[:20]:
        if d["partner_id"] and d["partner_id"] != own and not d["partner_corpus"]:
            ids[d["partner_id"]] = None
    for d in document.decisions[:3]:
        if d["cluster"] is not None and d["span_start"] is None and len(ids) < 3:
            ids |= dict.fromkeys(library.members(d["method"], d["cluster"], own)[:3])
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


def _render(template: str, **values: Any) -> str:
    return render(
        f"browse/{template}.html",
        **{"policy": PAGE_POLICY, "link": link, "most_chars": CHARS, **values},
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
        rows=rows,
        first=query.page * PAGE + 1,
        page_size=PAGE,
        previous=turn(query.page - 1) if query.page else "",
        next=turn(query.page + 1) if more else "",
        typed=typed,
    )


def document_page(document: Document) -> str:
    """One document."""
    return _render("document", document=document)


def message_page(message: str) -> str:
    """A page of one line."""
    return _render("message", message=message)


def sample_page(library: Library, each: int) -> str:
    """A bounded sample of the run as one file: of every rule, and of the kept documents, the `each`
    with the least hashes of their ids, so that the same run gives the same file."""
    from markupsafe import Markup

    sample = library.sample(each)
    positions = dict.fromkeys(row.position for rows in sample.values() for row in rows)
    chosen = list(positions)[:MOST_DOCUMENTS]
    documents = load(library, chosen, Originals(library.out, library.record))
    waiting = dict(zip(chosen, documents, strict=True))
    groups = [
        (title, [waiting.pop(row.position) for row in rows if row.position in waiting])
        for title, rows in sample.items()
    ]
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
        script=Markup(script),
    )
