"""The static page: a bounded sample of a run as one file, with a search among what it holds.

Of the kept documents and of each rule's it has those with the least hashes of their ids, so the
same run gives the same file. Its one script hides what does not match; the policy names that
script's hash, so nothing else can run.
"""

from __future__ import annotations

import base64
import hashlib

from curate.inspect.browse.document import Document, body, load
from curate.inspect.browse.library import Library
from curate.inspect.browse.originals import Originals
from curate.inspect.browse.pages import frame, tags
from curate.pages.html import count, lead, name, shown

MOST_DOCUMENTS = 400
SCRIPT = """
const box=document.getElementById('find'),all=[...document.querySelectorAll('details.doc')];
const said=document.getElementById('said');
document.getElementById('search').hidden=false;
box.addEventListener('input',()=>{const words=box.value.toLowerCase();let n=0;
for(const d of all){const hit=!words||d.textContent.toLowerCase().includes(words);
d.hidden=!hit;n+=hit}
said.textContent=words?n+' of '+all.length:''});
"""
LOOK_NOTE = "The files of the run hold all of them; <code>llmcurate browse OUT</code> shows those."


def render(library: Library, each: int) -> str:
    """The page; each: documents of every rule, and of the kept ones."""
    sample = library.sample(each)
    order: dict[tuple[str, int], tuple[bool, tuple[str, ...]]] = {}
    for rows in sample.values():
        for row in rows:
            if len(order) < MOST_DOCUMENTS:
                order.setdefault(row.place, (row.kept, row.rules))
    originals = Originals(library.out, library.record)
    loaded = dict(zip(order, load(library, list(order), originals), strict=True))
    groups: list[str] = []
    links: list[str] = []
    seen: set[tuple[str, int]] = set()
    for title, rows in sample.items():
        own = [r.place for r in rows if r.place in loaded and r.place not in seen]
        seen |= set(own)
        if not own:
            continue
        anchor = f"g{len(groups)}"
        links.append(f'<a class=tag href="#{anchor}">{name(title)} ({len(own)})</a>')
        inner = "".join(_one(loaded[place], order[place][1]) for place in own)
        groups.append(f'<section id="{anchor}"><h2>{name(title)}</h2>{inner}</section>')
    head = (
        f"<header><h1>{shown(library.record.get('recipe') or 'run', 60)}</h1>"
        + lead(
            f"{count(len(loaded))} documents: of the kept ones and of each rule's up to {each},"
            f" chosen by a hash of their ids, each once. {LOOK_NOTE}"
        )
        + "<p id=search hidden><label>find in these<input id=find type=search></label>"
        "<span class=note id=said role=status></span></p>"
        f"<nav aria-label=Rules>{''.join(links)}</nav></header>"
    )
    key = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{key}';"
        " form-action 'none'; base-uri 'none'"
    )
    title = f"{library.record.get('recipe')}: a sample of its documents"
    return frame(
        title, f"{head}<main>{''.join(groups)}</main>", policy, f"<script>{SCRIPT}</script>"
    )


def _one(found: Document, rules: tuple[str, ...]) -> str:
    words = " ".join((found.row.get("text") or "").split())
    head = (
        f"{name(found.row.get('id') or '(no id)')}<br>{tags(found.kept, rules)}"
        f"<span class=about dir=auto>{shown(words, 120)}</span>"
    )
    return f"<details class=doc><summary>{head}</summary>{body(found, served=False)}</details>"
