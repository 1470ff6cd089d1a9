"""Stack Exchange dumps written by hand."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr

import py7zr


def post(number: int, body: str, parent: int | None = None, score: int = 0, **more: str) -> str:
    """A post as the dumps have it, one a line."""
    stated = {"Id": str(number), "PostTypeId": "1" if parent is None else "2"}
    stated |= {"ParentId": str(parent)} if parent else {"Title": f"Question {number}?"}
    stated |= {"Score": str(score), "Body": body, "CreationDate": "2010-07-19T19:12:12.510"}
    attributes = " ".join(f"{name}={quoteattr(value)}" for name, value in (stated | more).items())
    return f"  <row {attributes} />\r\n"


POSTS = (
    post(4, "<p>The worse.</p>", parent=1, score=2, LastEditDate="2011-01-01T00:00:00")
    + post(1, "<p>How do I <b>grind</b>?</p>", score=5, Tags="<mill>", AcceptedAnswerId="9")
    + post(2, "<p>Lonely &amp; old</p>")
    + post(9, "<p>The better:</p><pre><code>if a &lt; b:\n    grind()\n</code></pre>", 1, 7)
    + post(5, "<p>To nothing</p>", parent=77)
    + post(6, "wiki").replace('PostTypeId="1"', 'PostTypeId="5"')
)


def dump(posts: str) -> str:
    """A file of posts."""
    return f'\ufeff<?xml version="1.0" encoding="utf-8"?>\r\n<posts>\r\n{posts}</posts>'


def packed(path: Path, members: dict[str, str]) -> Path:
    """A 7z file."""
    with py7zr.SevenZipFile(path, "w") as file:
        for name, text in members.items():
            file.writestr(text, name)
    return path
