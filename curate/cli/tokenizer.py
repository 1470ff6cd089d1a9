"""`llmcurate tokenizer`: train, judge and change tokenizers; encode token shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import (
    Inputs,
    Json,
    Quiet,
    Sets,
    group,
    newest,
    output,
    reading,
    run_steps,
)
from curate.cli.settings import command
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from curate.cli.execution import CommandOptions
    from curate.run.driver import Outcome

_KINDS = "tokenizer.json, its folder, SentencePiece's .model or tiktoken's .tiktoken."
tokenizer_app = group("tokenizer", "Train, judge and change tokenizers; encode token shards.")


@command(tokenizer_app, "tokenizer", "train", flags={"special_tokens": "--special"})
def train(
    inputs: Inputs = None,
    regex: Annotated[
        Optional[Path],
        typer.Option(
            "--pattern-file",
            metavar="PATH",
            help="File of regular expressions that cut text, one a line, in their order.",
        ),
    ] = None,
    sets: Sets = None,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Train a tokenizer: tokenizer.json and its card.

    \b
    Examples:
    llmcurate tokenizer train corpus/ -o tok --vocab 32000
    llmcurate tokenizer train corpus/ -o tok --pattern llama3 --vocab 8000,16000 --pad-to 128
    """
    if regex is not None:
        settings["regex"] = _expressions(regex)
    if "special_tokens" in settings:
        model = settings.get("model", "bpe")
        settings["special_tokens"] = with_end_of_text(settings["special_tokens"], model)
    run_steps("tokenizer", [("tokenizer", settings)], inputs, options, sets)


def with_end_of_text(special: tuple[str, ...], model: str = "bpe") -> tuple[str, ...]:
    """Special tokens of a command line, behind the usual ones where they have no end of text."""
    from tokenize_kit.formats.tokenizer_json import END_OF_TEXT
    from tokenize_kit.learn.options import BERT_TOKENS

    if any(token in END_OF_TEXT for token in special):
        return special
    usual = BERT_TOKENS if model == "wordpiece" else END_OF_TEXT[:1]
    return (*usual, *special)


def _expressions(path: Path) -> tuple[str, ...]:
    """The regular expressions of a file, one a line; a line of # is a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None
    expressions = tuple(line for line in lines if line.strip() and not line.startswith("# "))
    if not expressions:
        raise UsageError(f"{path}: no regular expression in it; write one a line")
    return expressions


@command(tokenizer_app, "shards", "encode")
def tokenizer_encode(
    inputs: Inputs = None,
    tokenizer: Annotated[
        Optional[Path],
        typer.Option(
            metavar="PATH",
            help="tokenizer.json or its folder, .model, .tiktoken. In a workspace the default is"
            " the newest.",
        ),
    ] = None,
    sets: Sets = None,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Encode documents into token shards.

    A trainer reads them. The same command again goes on where it stopped or was killed.

    \b
    Examples:
    llmcurate tokenizer encode corpus/ --tokenizer tok -o shards --val-fraction 0.01
    llmcurate tokenizer encode books/ --tokenizer tok --set read.max_record_bytes=2000000000
    """
    encode(tokenizer, settings, inputs or [], options, sets)


def encode(
    tokenizer: Path | None,
    settings: dict[str, Any],
    inputs: list[str],
    options: CommandOptions,
    sets: list[str] | None = None,
) -> Outcome:
    """Encodes the inputs; by default with the newest tokenizer of the workspace."""
    path = newest("tokenizer", tokenizer, "--tokenizer")
    shards = {"tokenizer": str(path), **settings}
    return run_steps("shards", [("shards", shards)], inputs, options, sets)


@command(tokenizer_app, "TokenizerEval", "eval")
def tokenizer_eval(
    tokenizers: Annotated[
        list[Path],
        typer.Argument(
            metavar="TOKENIZER...",
            help=_KINDS,
        ),
    ],
    on: Annotated[
        list[str], typer.Option("--on", metavar="DATA", help="Texts to judge on. [repeatable]")
    ],
    out: Annotated[
        Optional[Path], output("Folder for evaluation.json and evaluation.html.")
    ] = None,
    as_json: Json = False,
    *,
    read: dict[str, Any],
    **settings: Any,
) -> None:
    """Compare tokenizers on the same texts.

    Shows bytes a token, fertility, waste, losses and speed; -o writes a page.

    \b
    Example:
    llmcurate tokenizer eval tok other/tokenizer.json --on corpus/ --show 3 -o judged
    """
    import shutil
    import sys

    from curate.cli.tokenizer_settings import TokenizerEval
    from curate.inspect import results
    from curate.inspect.evaluate.tokenizers import evaluate
    from curate.inspect.evaluate.tokenizers_page import render
    from curate.inspect.evaluate.tokenizers_text import text
    from llmcurate.base.terminal.tables import coloured

    results.check_folder(out)
    chosen = TokenizerEval.of(settings)
    options = chosen.model_dump(exclude={"color"})
    figures = evaluate(tokenizers, on, quiet=as_json, read=reading(read), **options)
    colours = coloured(sys.stdout) if chosen.color is None else chosen.color
    width = shutil.get_terminal_size().columns
    results.show(
        figures,
        lambda: text(figures, width, colours),
        lambda: render(figures),
        out,
        as_json,
        colours=colours,
    )


@command(tokenizer_app, "TokenizerDiff", "diff")
def tokenizer_diff(
    first: Annotated[Path, typer.Argument(metavar="A", help=_KINDS)],
    second: Annotated[Path, typer.Argument(metavar="B", help="The other one.")],
    on: Annotated[
        Optional[list[str]],
        typer.Option("--on", metavar="DATA", help="Texts to cut with both. [repeatable]"),
    ] = None,
    out: Annotated[Optional[Path], output("Folder for diff.json and diff.html.")] = None,
    as_json: Json = False,
    *,
    read: dict[str, Any],
    **settings: Any,
) -> None:
    """Show what two tokenizers differ in.

    Compares tokens, ids, merges, special tokens and settings; with --on how texts are cut.

    \b
    Example:
    llmcurate tokenizer diff tok other/tokenizer.json --on corpus/ -o diff
    """
    import shutil

    from curate.cli.tokenizer_settings import TokenizerDiff
    from curate.inspect import results
    from curate.inspect.evaluate.tokenizers_diff import diff, render, text

    results.check_folder(out)
    options = TokenizerDiff.of(settings).model_dump()
    figures = diff((first, second), on or [], quiet=as_json, read=reading(read), **options)
    width = shutil.get_terminal_size().columns
    results.show(
        figures,
        lambda: text(figures, width),
        lambda: render(figures),
        out,
        as_json,
        name="diff",
    )


@command(tokenizer_app, "TokenizerStudy", "study")
def tokenizer_study(
    inputs: Annotated[
        list[str], typer.Argument(metavar="IN...", help="Texts like those to train on.")
    ],
    out: Annotated[Optional[Path], output("Folder for study.json and study.html.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: dict[str, Any],
    **settings: Any,
) -> None:
    """Compare sizes of a BPE vocabulary.

    Shows bytes a token against the parameters of the embedding.

    \b
    Example:
    llmcurate tokenizer study corpus/ --vocab 5000,25000,50000 -o study
    """
    from curate.cli.tokenizer_settings import TokenizerStudy
    from curate.inspect.evaluate.tokenizers_study import study

    chosen = TokenizerStudy.of(settings)
    how = (chosen.digits, chosen.width, chosen.worth)
    study(inputs, chosen.vocab, out, *how, as_json, chosen.dictionary, reading(read), quiet)
