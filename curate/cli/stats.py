"""`llmcurate stats`."""

from __future__ import annotations

from curate.cli.options import Inputs, Json, Out


def stats(inputs: Inputs = None, out: Out = None, as_json: Json = False) -> None:
    """Lengths, scores, languages, domains, dates and sources of any corpus; -o writes a page.

    Example: llmcurate stats corpus.jsonl.zst -o stats
    """
    from curate.cli import commands

    commands.stats(inputs or [], out, as_json)
