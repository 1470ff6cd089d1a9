"""The commands on trained models: import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli_options import Json, Quiet


def import_(
    folder: Annotated[Path, typer.Argument(help="A model's folder, as transformers saves it.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder to write.")],
    context: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Its longest text in tokens, where not the folder's own.", min=1),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read a transformers model (config.json, safetensors, tokenizer.json) as one of ours.

    Example: llmcurate import gpt2/ -o gpt2-run && llmcurate generate "The river" --model gpt2-run
    """
    from curate import models

    models.import_(folder, out, context, as_json, quiet)
