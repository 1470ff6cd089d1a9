"""`llmcurate push`: a corpus, a tokenizer, shards or a model to the Hugging Face hub."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.options import Json, Quiet, app
from curate.cli.settings import command
from llmcurate.base.terminal.output import answer


@command(app, "Push")
def push(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder of a run, a refresh or an exported model.")
    ],
    repository: Annotated[
        str, typer.Argument(metavar="ORG/NAME", help="Repository, made where it is not there.")
    ],
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Push a folder to the Hugging Face hub.

    It gets a card. A corpus becomes a data set of two configs, `corpus` and `rejected`; a tokenizer
    or a model a model repository. The next push sends what changed since, in one commit. The token
    is that of `hf auth login`, or HF_TOKEN.

    \b
    Examples:
    llmcurate push out me/clean-crawl
    llmcurate push out me/my-tokenizer --kind tokenizer --public --license apache-2.0
    """
    from curate.cli.command_settings import Push
    from curate.hub.push import push as push_folder
    from llmcurate.base.disk.units import counted

    chosen = Push.of(settings)
    done = push_folder(out, repository, chosen.kind, chosen.public, chosen.license, quiet)
    text = f"{done.url}: {counted(done.files, 'file')}, as commit {done.commit}"
    answer(asdict(done), text, as_json)
