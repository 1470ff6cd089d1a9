"""What `llmcurate browse` does."""

from __future__ import annotations

from pathlib import Path

from curate.disk.atomic import write_text
from curate.errors import UsageError
from curate.inspect.browse.library import library


def browse(run: Path, port: int, static: Path | None, each: int) -> None:
    """Serves the run until Ctrl-C, or writes the page."""
    if static is not None and (static.is_dir() or static.suffix.lower() not in (".html", ".htm")):
        raise UsageError(f"--static {static}: name a file that ends in .html")
    with library(run) as found:
        if static is not None:
            from curate.inspect.browse.pages import sample_page

            write_text(static, sample_page(found, each))
            print(f"wrote {static}")
            return
        from curate.inspect.browse.server import Server

        with Server(found, port) as server:
            print(f"{run} at {server.address} (this computer only; Ctrl-C ends it)", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print("stopped")
