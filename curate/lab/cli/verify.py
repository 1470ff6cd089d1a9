"""`llmcurate verify`: the second opinion of other libraries on a run."""

from __future__ import annotations

from typing import Any

import typer

from curate.cli.inspect import Run, finished
from curate.cli.options import Json, Page, app
from curate.cli.settings import command


@command(app, "Verify", panel="Lab")
def verify(
    run: Run = None,
    out: Page = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Recompute a sample of a run with other libraries.

    Reads records with warcio, pages with resiliparse, labels with fasttext, signatures with
    datasketch, Bloom filters with pybloom-live, cuts with pydivsufsort, tokens with tokenizers or
    sentencepiece, perplexities with kenlm. A difference that no documented cause explains is exit
    code 1; a library that is not installed is named.

    \b
    Example:
    llmcurate verify out
    """
    from curate.api.command_settings import Verify
    from curate.lab.verify import verify as verifying

    chosen = Verify.of(**settings)
    run = finished(run)
    verification = verifying.verify(run, chosen.documents, chosen.seed)
    verification.show(out, as_json)
    raise typer.Exit(0 if verification.passed else 1)
