"""`llmcurate tokenizer`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli_options import DryRun, Inputs, Json, Out, Quiet, Workers, how_of

tokenizer_app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="Train tokenizers; encode token shards."
)


@tokenizer_app.command("train")
def tokenizer_train(
    inputs: Inputs = None,
    out: Out = None,
    vocab: Annotated[int, typer.Option(help="Tokens wanted, special ones included.")] = 32_000,
    model: Annotated[str, typer.Option(help="bpe (byte level) or unigram.")] = "bpe",
    digits: Annotated[str, typer.Option(help="single or triples.")] = "single",
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Train a tokenizer: tokenizer.json and its card.

    Example: llmcurate tokenizer train corpus/ -o tok --vocab 32000
    """
    from curate import commands

    steps = [("tokenizer", {"vocab": vocab, "model": model, "digits": digits})]
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.steps("tokenizer", steps, inputs or [], how)


@tokenizer_app.command("encode")
def tokenizer_encode(
    inputs: Inputs = None,
    out: Out = None,
    tokenizer: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="tokenizer.json or its folder, .model, .tiktoken; in a workspace: the newest."
        ),
    ] = None,
    pattern: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="How text is cut, for .tiktoken: gpt2, cl100k, o200k, llama3, qwen2."),
    ] = None,
    shard_tokens: Annotated[int, typer.Option(help="Tokens of a shard at most.")] = 100_000_000,
    val_fraction: Annotated[
        float, typer.Option(help="Share of documents put into OUT/val, by hash of their ids.")
    ] = 0.0,
    shuffle: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Seed of a random order of documents; without: as they come."),
    ] = None,
    bos: Annotated[
        bool, typer.Option("--bos", help="Put the beginning-of-text token before each document.")
    ] = False,
    eos: Annotated[bool, typer.Option(help="Put the end-of-text token behind each.")] = True,
    form: Annotated[
        str, typer.Option("--format", help="llmcurate, megatron, nanogpt or olmo.")
    ] = "llmcurate",
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Encode documents into token shards that a trainer reads.

    Example: llmcurate tokenizer encode corpus/ --tokenizer tok -o shards --val-fraction 0.01
    """
    from curate import commands

    how = how_of(out, workers, as_json, dry_run, quiet)
    settings = {
        "pattern": pattern,
        "shard_tokens": shard_tokens,
        "val_fraction": val_fraction,
        "shuffle": shuffle,
        "bos": bos,
        "eos": eos,
        "format": form,
    }
    commands.encode(tokenizer, settings, inputs or [], how)
