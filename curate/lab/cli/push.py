"""`llmcurate push`: upload a folder to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.options import DryRun, Json, Quiet, app
from curate.cli.settings import command
from llmcurate.base.disk.units import counted
from llmcurate.base.terminal import echo, print_result


@command(app, "Push", panel="Lab")
def push(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder of a run, a refresh or an exported model.")
    ],
    repository: Annotated[
        str, typer.Argument(metavar="ORG/NAME", help="Repository; created if it does not exist.")
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Push a folder to the Hugging Face hub.

    A corpus becomes a dataset with two configs, `corpus` and `rejected`; a tokenizer or a model
    becomes a model repository. A card is added. Each later push uploads the changes in one
    commit. The token comes from `hf auth login` or HF_TOKEN.

    \b
    Examples:
    llmcurate push out me/clean-crawl
    llmcurate push out me/my-tokenizer --kind tokenizer --public --license apache-2.0
    """
    from curate.api.command_settings import Push
    from curate.lab.hub.push import contents_of
    from curate.lab.hub.push import push as push_folder

    chosen = Push.of(**settings)
    if dry_run:
        contents = contents_of(out, repository, chosen.kind)
        files = counted(len(contents.files) + 1, "file")
        echo(f"would push {files} to the {contents.type} {repository}")
        return
    done = push_folder(out, repository, chosen.kind, chosen.public, chosen.license, quiet)
    text = f"{done.url}: {counted(done.files, 'file')}, as commit {done.commit}"
    print_result(done, text, as_json)
