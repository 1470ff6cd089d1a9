"""The console script: a worker starts before the command line itself is loaded.

Both load their libraries for half a second or more, and with two cores at the same time.
"""

from __future__ import annotations

import sys

# Commands on documents, for which workers start while arguments are parsed, and the words with
# which they make no run.
_ON_DOCUMENTS = (
    "run", "extract", "filter", "dedup", "decontaminate", "language", "perplexity", "quality",
)  # fmt: skip
_NO_RUN = {
    "--help", "-h", "--dry-run", "clusters", "compare", "train", "evaluate", "threshold", "score",
    "convert",
}  # fmt: skip


def start_worker(arguments: list[str]) -> None:
    """Starts a worker where a command is sure to work on documents."""
    on_engine = any(a.startswith("--engine") for a in arguments)
    on_documents = bool(arguments[:1]) and arguments[0] in _ON_DOCUMENTS
    if on_documents and not on_engine and not _NO_RUN.intersection(arguments):
        from curate.engines import idle_workers

        idle_workers.start()


def main() -> None:
    """The command `llmcurate`."""
    start_worker([a for a in sys.argv[1:] if a != "--debug"])
    from curate.cli.app import main as command

    command()


if __name__ == "__main__":
    main()
