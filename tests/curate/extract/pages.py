"""Pages of HTML, and the text that is extracted from them."""

from __future__ import annotations

from curate.documents.documents import CORE, PAYLOAD, Documents, documents
from curate.extract.extraction import Extract

SENTENCES = (
    "The river runs past the old mill, and nobody has worked there since the flood.",
    "In spring the wheel turns all the same, because nobody ever took it down.",
    "Children from the village say that they hear the stones at night.",
    "The miller's grandson, who lives in town now, does not believe a word of it.",
)

MENU = "".join(f"<li><a href=/{n}>{n}</a></li>" for n in ("Home", "News", "Sport", "About us"))

RELATED = "".join(
    f"<li><a href=/r{k}>Ten more {n} you should read today</a></li>"
    for k, n in enumerate(("mills", "rivers", "villages"))
)


def page(body: str, before: str = "", after: str = "") -> str:
    return (
        f"<!DOCTYPE html><html lang=en><head><title>The mill</title></head><body>{before}"
        f"<header><nav class=menu><ul>{MENU}</ul></nav></header>"
        f"<main><article class=entry-content><h1>The old mill</h1>{body}</article></main>"
        f"<aside class=related><h3>Related</h3><ul>{RELATED}</ul></aside>{after}"
        "<footer class=footer><p>© 2024 The Valley Post. All rights reserved.</p></footer>"
        "</body></html>"
    )


PROSE = "".join(f"<p>{s} {t}</p>" for s in SENTENCES for t in SENTENCES[:2])


def extracted(*pages: bytes, **settings: object) -> Documents:
    docs = documents(
        {"payload": list(pages), "mime": ["text/html"] * len(pages)}, (*CORE, *PAYLOAD)
    )
    return Extract(extractor="blocks", **settings).apply(docs.within("extract"))  # type: ignore[arg-type]
