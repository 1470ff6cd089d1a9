"""`llmcurate tokenizer`: train, judge and change tokenizers; encode token shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import (
    CommandOptions,
    Inputs,
    Json,
    Page,
    Quiet,
    ReadOptions,
    Restart,
    Sets,
    group,
    newest,
    output,
    reading,
)
from curate.cli.settings import command, run_steps
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import coloured, echo, echo_json, say

if TYPE_CHECKING:
    from curate.formats.read_settings import ReadSettings
    from curate.run.records import Outcome

KINDS = "tokenizer.json, its folder, SentencePiece's .model or tiktoken's .tiktoken."
tokenizer_app = group("tokenizer", "Train, judge, change tokenizers; encode shards.", "Tokenizer")


@command(tokenizer_app, "tokenizer", "train")
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
    from tokenize_kit.learn.options import LEARNERS, Learner

    if any(token in END_OF_TEXT for token in special):
        return special
    return (*LEARNERS.get(model, Learner).special_tokens, *special)


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
    encode(tokenizer, inputs or [], options, sets, **settings)


def encode(
    tokenizer: Path | None,
    inputs: list[str],
    options: CommandOptions,
    sets: list[str] | None = None,
    **settings: Any,
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
            help=KINDS,
        ),
    ],
    on: Annotated[
        list[str], typer.Option("--on", metavar="DATA", help="Texts to judge on. [repeatable]")
    ],
    out: Page = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Compare tokenizers on the same texts.

    Shows bytes a token, fertility, waste, losses and speed; -o writes a page.

    \b
    Example:
    llmcurate tokenizer eval tok other/tokenizer.json --on corpus/ --show 3 -o judged
    """
    import sys

    from curate.api.command_settings import TokenizerEval
    from curate.inspect.tokenizers import evaluate

    chosen = TokenizerEval.of(**settings)
    options = chosen.model_dump(exclude={"color"})
    evaluation = evaluate(tokenizers, on, quiet=quiet or as_json, read=reading(read), **options)
    colours = coloured(sys.stdout) if chosen.color is None else chosen.color
    replace(evaluation, colours=colours).show(out, as_json, colours)


Source = Annotated[
    Path,
    typer.Argument(
        metavar="TOKENIZER", help="tokenizer.json or its folder, .model, .tiktoken or .gguf."
    ),
]
Out = Annotated[Path, output("Folder to write, or the file itself.")]


@command(tokenizer_app, None, "convert")
def convert(
    tokenizer: Source,
    out: Out,
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT", help="Format: tokenizer.json, sentencepiece, tiktoken or gguf."
        ),
    ],
    pattern: Annotated[
        Optional[str],
        typer.Option(
            metavar="TEXT",
            help="How text is cut, for a .tiktoken file: gpt2, cl100k, o200k, llama3 or qwen2.",
        ),
    ] = None,
    on: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="DATA",
            help="Texts whose ids must not change. The default is a set of hard ones. [repeatable]",
        ),
    ] = None,
    restart: Restart = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
) -> None:
    """Write a tokenizer in another format, with the same ids.

    Where that cannot be it says why, and writes nothing.

    \b
    Example:
    llmcurate tokenizer convert spm.model --to tokenizer.json -o tok
    """
    from tokenize_kit.change.convert import convert as run

    asked = {"tokenizer": tokenizer, "to": to, "pattern": pattern}
    texts = buffers(on, quiet or as_json, reading(read)) if on else None
    claim_for("convert", out, restart, **asked)
    card = run(tokenizer, out, to, pattern=pattern, batches=texts and texts())
    if as_json:
        echo_json({"out": str(out), **card.json()})
        return
    say(f"wrote {out}", quiet)
    count = card.verified_texts
    echo(
        f"the same ids in {count - card.ties:,} of {counted(count, 'text')}"
        f" ({card.verified_bytes:,} bytes) as {card.source}"
    )
    names = ["pattern", "pat_str", "special_tokens"] if to == "tiktoken" else []
    values = card.json()
    for name in [*names, "tokenizer.ggml.pre"]:
        if values.get(name):
            echo(f"{name}: {values[name]}")
    for note in card.notes:
        echo(f"note: {note}")


def claim_for(change: str, out: Path, restart: bool, **asked: Any) -> None:
    """Refuses an OUT that holds a tokenizer of another command, or of other settings."""
    from curate.run.build import claim
    from tokenize_kit.change.convert import FILES, target_file

    to = asked.get("to")
    alone, _ = target_file(out, to) if to in FILES else (False, out)
    files = [out] if alone else [out / name for name in (*FILES.values(), "tokenizer_card.json")]
    claim(out, files, {"command": f"tokenizer {change}", **asked}, restart)


def buffers(
    inputs: list[str], quiet: bool, read: ReadSettings
) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """What reads (data, offsets) of the documents of some inputs; those that cannot be read are
    refused first."""
    from curate.inspect.tokenizers import Documents

    documents = Documents(inputs, quiet, read)
    return lambda: ((data, offsets) for data, offsets, _ in documents.batches())
