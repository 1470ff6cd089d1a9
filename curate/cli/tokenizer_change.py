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
    from curate.cli import tokenizer_change_commands as change

    change.convert(tokenizer, out, to, pattern, verify or [], as_json)


Embeddings = Annotated[
    Optional[Path],
    typer.Option(metavar="CHECKPOINT", help="safetensors whose embeddings are changed alike."),
]
Tensors = Annotated[
    Optional[list[str]],
    typer.Option(
        "--tensor", help="Name of the embeddings where it is not a usual one; input, then output."
    ),
]


def extend(
    tokenizer: Source,
    corpus: Annotated[
        list[str], typer.Option("--with", metavar="CORPUS", help="Texts to learn from; repeatable.")
    ],
    add: Annotated[int, typer.Option(min=1, help="New tokens at most.")],
    out: Out,
    min_frequency: Annotated[
        int, typer.Option(min=1, help="Occurrences of a pair that is merged (BPE).")
    ] = 2,
    embeddings: Embeddings = None,
    tensor: Tensors = None,
    init: Annotated[
        str,
        typer.Option(help="New rows: mean (of a token's old parts) or random (as the old rows)."),
    ] = "mean",
    seed: Annotated[int, typer.Option(min=0, help="Of --init random.")] = 0,
    as_json: Json = False,
) -> None:
    """Add tokens of a corpus to a BPE or Unigram tokenizer; old ids stay.

    Example: llmcurate tokenizer extend tok --with thai/ --add 10000 -o tok-th

    With the model's embeddings: llmcurate tokenizer extend tok --with thai/ --add 10000 -o tok-th
    --embeddings model.safetensors
    """
    from curate.cli import tokenizer_change_commands as change

    settings = {"least": min_frequency, "tensors": tuple(tensor or ()), "init": init, "seed": seed}
    change.extend(tokenizer, corpus, add, out, embeddings, settings, as_json)


def prune(
    tokenizer: Source,
    on: Annotated[
        list[str], typer.Option("--on", metavar="CORPUS", help="Texts to count on; repeatable.")
    ],
    out: Out,
    keep_used: Annotated[
        Optional[int], typer.Option(min=1, help="Tokens that stay: those used most.")
    ] = None,
    min_count: Annotated[
        Optional[int], typer.Option(min=1, help="Uses of a token that stays; 1: what is used.")
    ] = None,
    embeddings: Embeddings = None,
    tensor: Tensors = None,
    as_json: Json = False,
) -> None:
    """Drop tokens that a corpus does not use from a BPE or Unigram tokenizer.

    Example: llmcurate tokenizer prune tok --on thai/ --min-count 1 -o tok-small
    """
    from curate.cli import tokenizer_change_commands as change

    names = tuple(tensor or ())
    change.prune(tokenizer, on, out, keep_used, min_count, embeddings, names, as_json)


def register(app: typer.Typer) -> None:
    """Adds the commands to `llmcurate tokenizer`."""
    app.command("convert")(convert)
    app.command("extend")(extend)
    app.command("prune")(prune)
