"""One document of a run: its text with its edits, its reasons, scores and copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from curate.documents.documents import CORE
from curate.documents.rejected import REASON_COLUMNS, rules_of
from curate.inspect.browse.library import Library
from curate.inspect.browse.originals import Originals, Run, replay
from curate.inspect.report.store import Position, read_rows
from curate.pages.html import plain

CHARS = 20_000  # of a text on a page
CUT_CHARS = 2_000  # of a piece that was cut
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

    def rules(self) -> tuple[str, ...]:
        """The rules that marked it, as `step.rule`."""
        return rules_of(self.row)

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
    edits = [e for e in row.get("edits") or [] if document.kept or e["step"] != row.get("step")]
    if not edits or row.get("text") is None:
        return
    original = originals.find(position, row | {"edits": edits})
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
