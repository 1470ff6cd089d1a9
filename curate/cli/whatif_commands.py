"""What `llmcurate whatif` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from curate.disk.atomic import write_text
from curate.errors import UsageError
from curate.inspect.whatif import columns
from curate.terminal.progress import say

if TYPE_CHECKING:
    from curate.api import How


def whatif(run: Path, sets: tuple[str, ...], page: Path | None, as_json: bool) -> None:
    """Prints the answer; with a page's path also writes that."""
    if page is not None and (page.is_dir() or page.suffix.lower() not in (".html", ".htm")):
        raise UsageError(f"-o {page}: name a file that ends in .html")
    early = columns.start(run)
    try:
        from curate.inspect.whatif import terminal
        from curate.inspect.whatif.figures import answer

        found = answer(run, sets, early)
    finally:
        if early is not None:
            early.close()
    if page is not None:
        from curate.inspect.whatif.page import render

        write_text(page, render(found))
    if as_json:
        print(json.dumps(found.dump(), ensure_ascii=False))
        return
    print(terminal.text(found))
    if page is not None:
        say(f"wrote {page}")


def apply_settings(run: Path, sets: tuple[str, ...], how: How) -> None:
    """Makes the run with other settings and tells what happened."""
    from curate.api import tell
    from curate.inspect.whatif.apply import apply
    from curate.run.driver import Options

    if how.out is not None and how.out.suffix.lower() in (".html", ".htm"):
        raise UsageError(f"-o {how.out}: with --apply it names a folder; ask for the page before")
    tell(apply(run, sets, how.out, Options(how.workers, how.quiet)), how)
