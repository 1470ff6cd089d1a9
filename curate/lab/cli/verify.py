"""`llmcurate verify`: check a run with other libraries."""

from __future__ import annotations

from typing import Any

import typer

from curate.cli.inspect import Recorded, finished
from curate.cli.options import Json, Page, Quiet, app
from curate.cli.settings import command
from llmcurate.base.terminal import suggest


@command(app, "Verify", panel="Lab")
def verify(
    run: Recorded = None,
    out: Page = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Recompute a sample of a run with other libraries.

    It uses warcio for records, resiliparse for pages, fasttext for labels, datasketch for
    signatures, pybloom-live for Bloom filters, pydivsufsort for cuts, tokenizers or sentencepiece
    for tokens, kenlm for perplexities. Libraries that are not installed are named. An unexplained
    difference gives exit code 1.

    \b
    Example:
    llmcurate verify out
    """
    from curate.api.command_settings import Verify
    from curate.lab.verify import verify as verifying

    chosen = Verify.of(**settings)
    run = finished(run, quiet)
    verification = verifying.verify(run, chosen.documents, chosen.seed)
    verification.show(out, as_json)
    can_browse = not verification.disagree and (run / "corpus").is_dir()
    suggest("browse" if can_browse else "check", run, quiet=quiet or as_json)
    raise typer.Exit(0 if verification.passed else 1)
