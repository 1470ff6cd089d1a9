"""The command `llmcurate`, and `python -m llmcurate`."""

from __future__ import annotations

import sys
from contextlib import suppress

from llmcurate.base import start

# Commands on documents, for which workers start while arguments are parsed, and the words with
# which they make no run.
_ON_DOCUMENTS = (
    "run", "extract", "filter", "dedup", "decontaminate", "language", "perplexity", "quality",
)  # fmt: skip
_NO_RUN = {
    "--help", "-h", "--dry-run", "clusters", "compare", "train", "evaluate", "threshold", "score",
    "convert",
}  # fmt: skip


def main() -> None:
    """Starts a worker where one will be needed, then loads the command line and runs it."""
    with suppress(FileNotFoundError):  # the working folder is gone
        start.leave_folder()
    _start_worker([a for a in sys.argv[1:] if a != "--debug"])
    from curate.cli.app import main as command

    command()


def _start_worker(arguments: list[str]) -> None:
    """Starts a worker where a command is sure to work on documents. It and the command line load
    libraries for half a second or more: on two cores at the same time."""
    on_engine = any(a.startswith("--engine") for a in arguments)
    on_documents = bool(arguments[:1]) and arguments[0] in _ON_DOCUMENTS
    if on_documents and not on_engine and not _NO_RUN.intersection(arguments):
        from curate.engines import idle_workers

        idle_workers.start()


if __name__ == "__main__":
    main()
