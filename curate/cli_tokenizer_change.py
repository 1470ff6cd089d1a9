"""`llmcurate tokenizer convert`, `extend` and `prune`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

Source = Annotated[
    Path,
    typer.Argument(
        metavar="TOKENIZER", help="tokenizer.json or its folder, .model, .tiktoken or .gguf."
    ),
]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder to write, or the file itself.")]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as one line of JSON.")]


def convert(
    tokenizer: Source,
    out: Out,
    to: Annotated[str, typer.Option(help="tokenizer.json, sentencepiece, tiktoken or gguf.")],
    pattern: Annotated[
        Optional[str],
        typer.Option(help="How text is cut, for .tiktoken: gpt2, cl100k, o200k, llama3, qwen2."),
    ] = None,
    verify: Annotated[
        Optional[list[str]],
        typer.Option(metavar="DATA", help="Texts whose ids must not change; without: hard ones."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a tokenizer in another format, with the same ids, or say why that cannot be.

    Example: llmcurate tokenizer convert spm.model --to tokenizer.json -o tok
    """
    from curate.tokenizer import change

    change.convert(tokenizer, out, to, pattern, verify or [], as_json)


def register(app: typer.Typer) -> None:
    """Adds the commands to `llmcurate tokenizer`."""
    app.command("convert")(convert)
