"""`llmcurate push`: what was made, to the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.options import Json, Quiet, app
from curate.cli.settings import command
from llmcurate.base.disk.units import counted
from llmcurate.base.terminal import answer


@command(app, "Push", panel="Lab")
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
    from curate.api.command_settings import Push
    from curate.lab.hub.push import push as push_folder

    chosen = Push.of(**settings)
    done = push_folder(out, repository, chosen.kind, chosen.public, chosen.license, quiet)
    text = f"{done.url}: {counted(done.files, 'file')}, as commit {done.commit}"
    answer(done, text, as_json)
