"""A worker that starts before the command line itself is loaded, where documents will be worked on.

Both load libraries for half a second or more: on two cores at the same time.
"""

from __future__ import annotations

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
