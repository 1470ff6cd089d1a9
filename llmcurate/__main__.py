"""The command `llmcurate`, also `python -m llmcurate`."""

from __future__ import annotations

import sys
from contextlib import suppress

from llmcurate.base import start

# Commands that process documents: a worker starts while their arguments are parsed. The words of
# _NO_RUN mean that no run follows.
_ON_DOCUMENTS = (
    "run", "extract", "filter", "dedup", "decontaminate", "language", "perplexity", "quality",
)  # fmt: skip
_NO_RUN = {
    "--help", "-h", "--dry-run", "clusters", "compare", "train", "evaluate", "threshold", "score",
    "convert", "label",
}  # fmt: skip


def main() -> None:
    """Load the command line and run it; first start a worker if the command will need one."""
    with suppress(FileNotFoundError):  # the working folder was deleted
        start.leave_folder()
    _start_worker([a for a in sys.argv[1:] if a != "--debug"])
    from curate.cli.app import main as command

    command()


def _start_worker(arguments: list[str]) -> None:
    """Start a worker process if the command is certain to process documents. The worker and this
    process each load libraries for half a second or more; so both do that at the same time."""
    on_engine = any(a.startswith("--engine") for a in arguments)
    on_documents = bool(arguments[:1]) and arguments[0] in _ON_DOCUMENTS
    if on_documents and not on_engine and not _NO_RUN.intersection(arguments):
        from curate.engines import idle_workers

        idle_workers.start()


if __name__ == "__main__":
    main()
