"""The pages of a browsed run: the list with its search, one document, a message, a sample.

No script runs on the pages that are served. The sample is one file for a reader without the run:
its one script hides the documents that do not match, and the policy names that script's hash.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlencode

from curate.inspect.browse.document import CHARS, Document, load
from curate.inspect.browse.library import PAGE, Library, Query, Row
from curate.inspect.browse.originals import Originals
from curate.pages.templates import render, source

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
