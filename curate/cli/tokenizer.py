"""`llmcurate tokenizer`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli import tokenizer_change as cli_tokenizer_change
from curate.cli.options import DryRun, Inputs, Json, Out, Quiet, Workers, how_of
from curate.cli.tokenizer_train import train

tokenizer_app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Train, judge and change tokenizers; encode token shards.",
)


tokenizer_app.command("train")(train)


@tokenizer_app.command("encode")
def tokenizer_encode(
    inputs: Inputs = None,
    out: Out = None,
    tokenizer: Annotated[
        Optional[Path],
        typer.Option(
            help="tokenizer.json or its folder, .model, .tiktoken; in a workspace: the newest."
        ),
    ] = None,
    pattern: Annotated[
        Optional[str],
        typer.Option(help="How text is cut, for .tiktoken: gpt2, cl100k, o200k, llama3, qwen2."),
    ] = None,
    shard_tokens: Annotated[int, typer.Option(help="Tokens of a shard at most.")] = 100_000_000,
    val_fraction: Annotated[
        float, typer.Option(help="Share of documents put into OUT/val, by hash of their ids.")
    ] = 0.0,
    shuffle: Annotated[
        Optional[int],
        typer.Option(help="Seed of a random order of documents; without: as they come."),
    ] = None,
    bos: Annotated[
        bool, typer.Option("--bos", help="Put the beginning-of-text token before each document.")
    ] = False,
    eos: Annotated[bool, typer.Option(help="Put the end-of-text token behind each.")] = True,
    form: Annotated[
        str, typer.Option("--format", help="llmcurate, megatron, nanogpt or olmo.")
    ] = "llmcurate",
    loss_mask: Annotated[
        Optional[str],
        typer.Option(
            metavar="COLUMN",
            help="Of booleans, or lists of [start, end): the characters that count in training.",
        ),
    ] = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Encode documents into token shards that a trainer reads; stopped or killed, it goes on.

    Example: llmcurate tokenizer encode corpus/ --tokenizer tok -o shards --val-fraction 0.01
    """
    from curate.cli import commands

    how = how_of(out, workers, as_json, dry_run, quiet)
    settings = {
        "pattern": pattern,
        "shard_tokens": shard_tokens,
        "val_fraction": val_fraction,
        "shuffle": shuffle,
        "bos": bos,
        "eos": eos,
        "format": form,
        "loss_mask": loss_mask,
    }
    commands.encode(tokenizer, settings, inputs or [], how)


@tokenizer_app.command("eval")
def tokenizer_eval(
    tokenizers: Annotated[
        list[Path],
        typer.Argument(
            metavar="TOKENIZER...",
            help="tokenizer.json, its folder, SentencePiece's .model or tiktoken's .tiktoken.",
        ),
    ],
    on: Annotated[
        list[str], typer.Option("--on", metavar="DATA", help="Texts to judge on; repeatable.")
    ],
    out: Annotated[
        Optional[Path],
        typer.Option("-o", "--out", help="Folder for evaluation.json and evaluation.html."),
    ] = None,
    baseline: Annotated[
        Optional[Path],
        typer.Option(help="Give every length as a share of this tokenizer's, too."),
    ] = None,
    pattern: Annotated[
        Optional[str],
        typer.Option(help="How text is cut, for .tiktoken: gpt2, cl100k, o200k, llama3, qwen2."),
    ] = None,
    show: Annotated[
        int, typer.Option(min=0, max=100, help="Show where so many first texts are cut.")
    ] = 0,
    color: Annotated[
        Optional[bool],
        typer.Option("--color/--no-color", help="Colours; without: on a terminal."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare tokenizers on the same texts: bytes a token, fertility, waste, losses, speed.

    Example: llmcurate tokenizer eval tok other/tokenizer.json --on corpus/ --show 3 -o judged
    """
    import shutil
    import sys

    from curate.inspect import results
    from curate.inspect.evaluate import tokenizers as evaluation
    from curate.inspect.report.clusters_text import coloured

    results.check_folder(out)
    figures = evaluation.evaluate(tokenizers, on, show, as_json, pattern, baseline)
    colours = coloured(sys.stdout) if color is None else color
    width = shutil.get_terminal_size().columns
    results.show(
        figures,
        lambda: evaluation.text(figures, width, colours),
        lambda: evaluation.render(figures),
        out,
        as_json,
    )


@tokenizer_app.command("study")
def tokenizer_study(
    inputs: Annotated[list[str], typer.Argument(metavar="IN...", help="Texts as to train on.")],
    vocab: Annotated[str, typer.Option(help="Sizes to compare.")] = "4000,8000,16000,32000,64000",
    out: Annotated[
        Optional[Path],
        typer.Option("-o", "--out", help="Folder for study.json and study.html."),
    ] = None,
    digits: Annotated[str, typer.Option(help="single, triples, triples-right or free.")] = "single",
    width: Annotated[int, typer.Option(min=1, help="Of the model's embedding.")] = 768,
    worth: Annotated[
        float, typer.Option(min=0, max=1, help="Share of tokens a doubling must save.")
    ] = 0.03,
    as_json: Json = False,
) -> None:
    """Compare sizes of a BPE vocabulary: bytes a token against embedding parameters.

    Example: llmcurate tokenizer study corpus/ --vocab 5000,25000,50000 -o study
    """
    from curate.inspect.evaluate import tokenizers_study as study

    study.study(inputs, vocab, out, digits, width, worth, as_json)


cli_tokenizer_change.register(tokenizer_app)
