"""What `llmcurate whatif` does."""

from __future__ import annotations

import json
from pathlib import Path

from curate.atomic import write_text
from curate.errors import UsageError
from curate.progress import say
from curate.whatif import terminal
from curate.whatif.figures import answer


def whatif(run: Path, sets: tuple[str, ...], page: Path | None, as_json: bool) -> None:
    """Prints the answer; with a page's path also writes that."""
    if page is not None and (page.is_dir() or page.suffix.lower() not in (".html", ".htm")):
        raise UsageError(f"-o {page}: name a file that ends in .html")
    found = answer(run, sets)
    if page is not None:
        from curate.whatif.page import render

        write_text(page, render(found))
    if as_json:
        print(json.dumps(found.dump(), ensure_ascii=False))
        return
    print(terminal.text(found))
    if page is not None:
        say(f"wrote {page}")
