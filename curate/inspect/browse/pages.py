"""The served pages: the list with its search, one document, an error. No script runs on them."""

from __future__ import annotations

from dataclasses import asdict, replace

from curate.documents.rejected import rules_of
from curate.inspect.browse.document import Document, body, link
from curate.inspect.browse.library import Library, Query, Row
from curate.pages.html import name, number, shown
from curate.pages.style import STYLE

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
LOOK = """
.page.one{display:block;max-width:64rem}
.search{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,10.5rem),1fr));
gap:.6rem .9rem;margin:1rem 0 1.25rem;align-items:end}
.search .words{grid-column:1/-1}
label{font-size:.8rem;color:var(--muted);display:block;min-width:0}
input,select,button{font:inherit;font-size:.95rem;width:100%;min-width:0;color:var(--ink);
background:var(--card);border:1px solid var(--line);border-radius:5px;padding:.4rem .55rem;
height:2.4rem}
button{background:var(--accent);border-color:var(--accent);color:var(--paper);cursor:pointer}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.hit{border-top:1px solid var(--line);padding:.75rem 0}
.hit h3{margin:0}.hit p{margin:.2rem 0;overflow-wrap:anywhere}
.hit .excerpt{font-size:.9rem;display:-webkit-box;-webkit-line-clamp:3;-webkit-box-orient:vertical;
overflow:hidden}
.tag{display:inline-block;font-size:.75rem;border:1px solid var(--line);border-radius:4px;
padding:0 .4rem;margin:0 .35rem .15rem 0;color:var(--muted);overflow-wrap:anywhere}
.tag.kept{color:var(--accent);border-color:var(--accent)}
.tag.gone{color:var(--cutline);border-color:var(--cutline)}
.turn{display:flex;gap:1.25rem;margin:1.25rem 0}
h1{overflow-wrap:anywhere}
.sides pre{margin-top:0}
"""


def frame(title: str, inner: str, policy: str = POLICY, end: str = "") -> str:
    """A page. The policy is in the page too, for one that is saved."""
    page = (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{_in_page(policy)}">'
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        '<meta name=referrer content="no-referrer">'
        f"<title>{shown(title, 120)}</title><style>{STYLE}{LOOK}</style></head>"
        f'<body><div class="page one">{inner}</div>{end}</body></html>\n'
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def _in_page(policy: str) -> str:
    """Without what browsers take from a header only."""
    return policy.replace("; frame-ancestors 'none'", "")


def tags(kept: bool, rules: tuple[str, ...]) -> str:
    """What happened to a document, and by which rules."""
    status = (
        "<span class='tag kept'>kept</span>" if kept else "<span class='tag gone'>rejected</span>"
    )
    more = "".join(f"<span class=tag>{name(r)}</span>" for r in rules[:8])
    return status + more + (f"<span class=tag>+{len(rules) - 8}</span>" if len(rules) > 8 else "")


def listed(library: Library, query: Query, rows: list[Row], more: bool) -> str:
    """The list of documents that a query found."""
    recipe = shown(library.record.get("recipe") or "run", 60)
    totals = library.record.get("totals") or {}
    said = f"{totals.get('kept', 0):,} kept, {totals.get('rejected', 0):,} rejected"
    first = query.page * 50 + 1
    found = f"{first:,} to {first + len(rows) - 1:,}" if rows else "nothing found"
    hits = "".join(_hit(row, query) for row in rows)
    inner = (
        f"<header><h1><a href='/'>{recipe}</a></h1><p class=lead>{said}</p></header>"
        f"<main>{_form(library, query)}<p class=note>{found}</p>{hits}{_turn(query, more)}</main>"
    )
    return frame(f"{library.record.get('recipe')}: documents", inner)


def _form(library: Library, query: Query) -> str:
    def choice(label: str, field: str, values: list[str], chosen: str, every: str) -> str:
        options = "".join(
            f'<option value="{shown(v, 400)}"{" selected" if v == chosen else ""}>{shown(v, 60)}'
            for v in values
        )
        return (
            f"<label>{label}<select name={field}><option value=''>{every}{options}</select></label>"
        )

    def entry(label: str, field: str, value: str, kind: str = "text") -> str:
        return f'<label>{label}<input name={field} type={kind} value="{shown(value, 400)}"></label>'

    langs = "".join(f'<option value="{shown(v)}">' for v in library.langs)
    return (
        "<form class=search action='/' method=get role=search>"
        '<label class=words>text, id or URL contains<input name=words type=search value="'
        f'{shown(query.words, 400)}"></label>'
        + choice("status", "status", ["kept", "rejected"], query.status, "all")
        + choice("rule", "rule", library.rules, query.rule, "any")
        + f'<label>language<input name=lang list=langs value="{shown(query.lang, 60)}"></label>'
        + f"<datalist id=langs>{langs}</datalist>"
        + choice("score", "column", library.columns, query.column, "none")
        + entry("from", "least", number_text(query.least))
        + entry("to", "most", number_text(query.most))
        + (entry("cluster", "cluster", query.cluster) if library.store.has_decisions else "")
        + "<label>&nbsp;<button>Search</button></label></form>"
    )


def number_text(value: float | None) -> str:
    """A number as it was typed."""
    return "" if value is None else f"{value:.15g}"


def _hit(row: Row, query: Query) -> str:
    score = (
        f"<span class=tag>{name(query.column)} {number(row.score)}</span>" if query.column else ""
    )
    lang = f"<span class=tag>{name(row.lang)}</span>" if row.lang else ""
    url = f"<p class=about>{name(row.url)}</p>" if row.url else ""
    to = f"/document{link(id=row.id)}"
    return (
        f'<article class=hit><h3><a href="{to}">{name(row.id or "(no id)")}</a>'
        f"</h3>{url}<p>{tags(row.kept, row.rules)}{lang}{score}<span class=tag>{row.bytes:,} bytes"
        f"</span></p><p class=excerpt dir=auto>{shown(' '.join(row.excerpt.split()))}</p></article>"
    )


def _turn(query: Query, more: bool) -> str:
    def to(page: int, label: str) -> str:
        fields = asdict(replace(query, page=page)) | {"page": page or ""}
        fields |= {n: number_text(fields[n]) for n in ("least", "most")}
        return f'<a href="/{link(**fields)}">{label}</a>'

    back = to(query.page - 1, "previous 50") if query.page else ""
    return f"<p class=turn>{back}{to(query.page + 1, 'next 50') if more else ''}</p>"


def document(library: Library, found: Document) -> str:
    """One document's page."""
    identity = found.row.get("id") or ""
    rules = rules_of(found.row)
    inner = (
        f"<header><p class=note><a href='/'>all documents</a></p><h1>{name(identity)}</h1>"
        f"<p>{tags(found.kept, rules)}</p></header><main>{body(found, served=True)}</main>"
    )
    return frame(identity or "document", inner)


def failed(said: str) -> str:
    """A page with one line."""
    return frame(
        "llmcurate browse", f"<h1>{shown(said, 300)}</h1><p><a href='/'>all documents</a></p>"
    )
