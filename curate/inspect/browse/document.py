"""One document as HTML: text with cuts struck through, reasons, scores, copies side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from curate.documents.documents import CORE
from curate.documents.rejected import REASON_COLUMNS, reasons_of
from curate.inspect.browse.library import Library
from curate.inspect.browse.originals import Originals, Run, replay
from curate.inspect.report.store import Place, read_rows
from curate.pages.diff import word_diff
from curate.pages.html import count, details, name, number, shown, table

CHARS = 20_000  # of a text on a page
CUT_CHARS = 2_000  # of a piece that was cut
MOST_CUTS, MOST_SCORES = 200, 200
HIDDEN = {n for n, _ in CORE} | {"edits", "extra", *REASON_COLUMNS}


@dataclass
class Document:
    """row: its columns; kept: whether it stands in corpus/; partners: (decision, text or None) of
    copies; runs: the text with its cuts, None where that is not known."""

    row: dict[str, Any]
    kept: bool
    runs: list[Run] | None
    decisions: list[dict[str, Any]]
    partners: dict[str, str] = field(default_factory=dict)


def load(library: Library, places: list[Place], originals: Originals) -> list[Document]:
    """The documents at these places, in their order."""
    everything = _columns(library)
    rows = read_rows(places, everything, 4 << 20)
    found = []
    kept = {str(p) for p in library.store.kept}
    for place in places:
        row = rows[place]
        document = Document(row, place[0] in kept, None, library.partners(row.get("id") or ""))
        _cuts(document, place, originals)
        _partners(document, library)
        found.append(document)
    return found


def _columns(library: Library) -> list[str]:
    import pyarrow.parquet as pq

    names: dict[str, None] = {}
    for path in (*library.store.kept[:1], *library.store.gone[:1]):
        names |= dict.fromkeys(pq.read_schema(path).names)
    return list(names)


def _cuts(document: Document, place: Place, originals: Originals) -> None:
    row = document.row
    edits = [e for e in row.get("edits") or [] if document.kept or e["step"] != row.get("step")]
    if not edits or row.get("text") is None:
        return
    original = originals.find(place, row | {"edits": edits})
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
    where = {i: library.place(i) for i in chosen}
    rows = read_rows([w for w in where.values() if w], ["text"], CHARS)
    document.partners = {i: rows[w].get("text") or "" for i, w in where.items() if w}


def link(**fields: Any) -> str:
    """A query's path, escaped for an attribute."""
    path = "?" + urlencode(
        {k: v for k, v in fields.items() if v not in ("", None)}, errors="replace"
    )
    return shown(path, len(path))


def body(document: Document, served: bool) -> str:
    """Everything about the document. served: links lead to other pages."""
    row = document.row
    url = row.get("url")
    about = [["source", name(row.get("source") or "")], ["language", name(row.get("lang") or "")]]
    about += [["url", name(url)]] if url else []
    about += [["date", shown(row["date"])]] if row.get("date") else []
    parts = [
        "<dl>" + "".join(f"<dt>{a}</dt><dd>{b}</dd>" for a, b in about) + "</dl>",
        _reasons(row),
        _text(document),
        _copies(document, served),
        _scores(row),
    ]
    return "".join(parts)


def _reasons(row: dict[str, Any]) -> str:
    reasons = reasons_of(row)
    if not reasons:
        return ""
    rows = [
        [name(r.name), number(r.value), number(r.threshold), shown(r.detail or "", 200)]
        for r in reasons
    ]  # fmt: skip
    return "<h3>Reasons</h3>" + table(["rule", "value", "limit", "detail"], rows, {1, 2})


def _text(document: Document) -> str:
    row = document.row
    text = row.get("text")
    if not text and not document.runs:
        return "<h3>Text</h3><p class=note>(no text)</p>"
    text = text or ""
    edits = row.get("edits") or []
    if document.runs is not None:
        said = "What steps cut is struck through, what they put in its place underlined."
        return f"<h3>Text</h3><p class=note>{said}</p><pre dir=auto>{_runs(document.runs)}</pre>"
    note = f"<p class=note>{_missing(edits)}</p>" if edits else ""
    more = f"<p class=note>The first {count(CHARS)} characters.</p>" if len(text) > CHARS else ""
    return f"<h3>Text</h3>{note}<pre dir=auto>{shown(text, CHARS)}</pre>{more}{_edits(edits)}"


def _runs(runs: list[Run]) -> str:
    pieces, left = [], CHARS
    for run in runs:
        if left <= 0:
            pieces.append("\u2026")
            break
        if run.cut and run.put:
            continue
        text = run.text.decode("utf-8", "replace")
        most = min(left, CUT_CHARS) if run.cut else left
        inner = shown(text, most)
        left -= min(len(text), most)
        rule = shown(run.cut or run.put or "")
        if run.cut:
            inner = f'<del title="cut by {rule}">{inner}</del>'
        elif run.put:
            inner = f'<ins title="put by {rule}">{inner}</ins>'
        pieces.append(inner)
    return "".join(pieces)


def _missing(edits: list[dict[str, Any]]) -> str:
    size = sum(e["end"] - e["start"] for e in edits)
    return (
        f"{count(len(edits))} pieces, {count(size)} bytes, were cut or replaced; the text before"
        " that is no longer there (the run's input has moved or changed)."
    )


def _edits(edits: list[dict[str, Any]]) -> str:
    if not edits:
        return ""
    rows = [
        [name(f"{e['step']}.{e['rule']}"), count(e["start"]), count(e["end"]),
         shown(e["replacement"] or "", 80)]
        for e in edits[:MOST_CUTS]
    ]  # fmt: skip
    inner = table(["cut by", "from byte", "to", "replaced by"], rows, {1, 2})
    return details(f"{count(len(edits))} cuts", inner)


def _copies(document: Document, served: bool) -> str:
    if not document.decisions:
        return ""
    own = document.row.get("id") or ""
    rows = []
    for d in document.decisions[:20]:
        cluster = "" if d["cluster"] is None else f"{shown(d['method'])}:{d['cluster']}"
        if served and cluster:
            all_of = link(cluster=f"{d['method']}:{d['cluster']}")
            cluster = f'<a href="/{all_of}">{cluster}</a>'
        partner = d["partner_id"] or ("" if d["kept_id"] == own else d["kept_id"] or "")
        where = "whole" if d["span_start"] is None else f"bytes {d['span_start']}-{d['span_end']}"
        stays = "stays" if d["kept_id"] == own else name(d["kept_id"] or "(none)")
        said = number(d["similarity"])
        rows.append([cluster or shown(d["method"]), where, _id(partner, served), said, stays])
    parts = [table(["cluster", "what", "copy of", "similarity", "who stays"], rows, {3})]
    text = document.row.get("text") or ""
    for other, theirs in document.partners.items():
        one, two, equal = word_diff(text[:CHARS], theirs)
        if equal:
            parts.append(f"<p>{_id(other, served)}: the same words.</p>")
            continue
        parts.append(
            f"<div class=sides><div><p class=about>this document</p><pre dir=auto>{one}</pre></div>"
            f"<div><p class=about>{_id(other, served)}</p><pre dir=auto>{two}</pre></div></div>"
        )
    return f"<h3>Copies</h3>{''.join(parts)}"


def _id(of: str, served: bool) -> str:
    if not of:
        return ""
    return f'<a href="/document{link(id=of)}">{name(of)}</a>' if served else name(of)


def _scores(row: dict[str, Any]) -> str:
    rows = []
    for key, value in row.items():
        if key in HIDDEN or value is None or "." not in key:
            continue
        said = number(value) if isinstance(value, (int, float)) else shown(value, 200)
        rows.append([name(key), said])
    if not rows:
        return ""
    inner = table(["score", "value"], rows[:MOST_SCORES], {1})
    return details(f"{len(rows)} scores", inner, opened=len(rows) <= 12)
