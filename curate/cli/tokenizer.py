"""`llmcurate tokenizer`: train, evaluate and convert tokenizers; encode token shards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from llmcurate.base.disk.files import read_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.terminal import echo, echo_json, say, suggest

if TYPE_CHECKING:
    from curate.formats.read_settings import ReadSettings
    from curate.run.records import Outcome

KINDS = "tokenizer.json, its folder, SentencePiece's .model or tiktoken's .tiktoken."
tokenizer_app = group("tokenizer", "Train, evaluate and convert tokenizers.", "Tokenizer")


@command(tokenizer_app, "tokenizer", "train")
def train(
    inputs: Inputs = None,
    regex: Annotated[
        Optional[Path],
        typer.Option(
            "--pattern-file",
            metavar="PATH",
            help="File of regular expressions that split the text, one per line, applied in order.",
        ),
    ] = None,
    sets: Sets = None,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Train a tokenizer.

    It writes tokenizer.json and tokenizer_card.md.

    \b
    Examples:
    llmcurate tokenizer train corpus/ -o tok --vocab 32000
    llmcurate tokenizer train corpus/ -o tok --pattern llama3 --vocab 8000,16000 --pad-to 128
    """
    if regex is not None:
        settings["regex"] = _expressions(regex)
    run_steps("tokenizer", [("tokenizer", settings)], inputs, options, sets)


def _expressions(path: Path) -> tuple[str, ...]:
    lines = read_text(path).splitlines()
    expressions = tuple(line for line in lines if line.strip() and not line.startswith("# "))
    if not expressions:
        raise UsageError(f"{path}: no regular expression in it; write one per line")
    return expressions


@command(tokenizer_app, "shards", "encode")
def tokenizer_encode(
    inputs: Inputs = None,
    tokenizer: Annotated[
        Optional[Path],
        typer.Option(
            metavar="PATH",
            help="tokenizer.json or its folder, .model or .tiktoken. In a workspace the default is"
            " the newest tokenizer.",
        ),
    ] = None,
    sets: Sets = None,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Encode documents into token shards for training.

    Run the same command to resume after a stop.

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
    """Encode the inputs into token shards. In a workspace the default is the newest tokenizer."""
    path = newest("tokenizer", tokenizer, "--tokenizer")
    shards = {"tokenizer": str(path), **settings}
    return run_steps("shards", [("shards", shards)], inputs, options, sets)


@command(tokenizer_app, "TokenizerEval", "eval")
def tokenizer_eval(
    tokenizers: Annotated[list[Path], typer.Argument(metavar="TOKENIZER...", help=KINDS)],
    on: Annotated[
        list[str],
        typer.Option(
            "--on", metavar="DATA", help="Evaluation texts, as PATH or NAME=PATH. [repeatable]"
        ),
    ],
    out: Page = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Compare tokenizers on the same texts.

    It shows bytes per token, tokens per word, unused tokens, lost text and speed; -o writes a page.

    \b
    Example:
    llmcurate tokenizer eval tok other/tokenizer.json --on corpus/ --show 3 -o judged
    """
    from curate.api.command_settings import TokenizerEval
    from curate.inspect.tokenizers import evaluate

    chosen = TokenizerEval.of(**settings)
    paths = [each if Path(each).exists() else re.sub(r"^\w[\w.-]*=", "", each) for each in on]
    how: dict[str, Any] = {"quiet": quiet or as_json, "read": reading(read)}
    how |= chosen.model_dump()
    evaluate(tokenizers, paths, **how).show(out, as_json)
    words = ["encode", *paths, "--tokenizer", tokenizers[0], "-o", "shards"]
    suggest("tokenizer", *words, quiet=quiet or as_json)


Source = Annotated[
    Path,
    typer.Argument(
        metavar="TOKENIZER", help="tokenizer.json or its folder, .model, .tiktoken or .gguf."
    ),
]
Out = Annotated[Path, output("Folder to write, or the file itself.")]


@command(tokenizer_app, "TokenizerConvert", "convert")
def convert(
    tokenizer: Source,
    out: Out,
    restart: Restart = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Convert a tokenizer to another format with the same ids.

    If that is not possible, the command says why and writes nothing.

    \b
    Example:
    llmcurate tokenizer convert spm.model --to tokenizer.json -o tok
    """
    from curate.api.command_settings import TokenizerConvert
    from tokenize_kit.change.convert import convert as run

    chosen = TokenizerConvert.of(**settings)
    texts = buffers(chosen.on, quiet or as_json, reading(read)) if chosen.on else None
    with claim_for("convert", out, restart, tokenizer=tokenizer, **settings):
        card = run(
            tokenizer,
            out,
            chosen.to,
            pattern=chosen.pattern,
            batches=texts and texts(),
            allow_loss=chosen.allow_loss,
            begin=chosen.bos_token,
            end=chosen.eos_token,
        )
    if as_json:
        echo_json({"out": str(out), **card.json()})
        return
    say(f"wrote {out}", quiet)
    count = card.verified_texts
    echo(
        f"same ids as {card.source} in {count - card.ties:,} of {counted(count, 'text')}"
        f" ({card.verified_bytes:,} bytes)"
    )
    tried, parsed = card.compared, card.compared["parsed_texts"]
    echo(
        f"and in {tried['added_texts']:,} with {counted(tried['added_tokens'], 'added token')}"
        + (f"; in {parsed:,} with special tokens matched, too" if parsed else "")
    )
    echo(f"same text from the ids of {counted(tried['decoded_texts'], 'text')}")
    for feature in card.lost:
        echo(f"lost: {feature}")
    if tried["explained_texts"]:
        differing = counted(tried["explained_texts"], "text")
        echo(f"{'so' if card.lost else 'but'} the ids of {differing} differ")
    names = ["pattern", "pat_str", "special_tokens"] if chosen.to == "tiktoken" else []
    values = card.json()
    for name in [*names, "tokenizer.ggml.pre"]:
        if values.get(name):
            shown = str(values[name])
            more = "" if len(shown) < 1000 else f"... ({len(values[name]):,} in the card)"
            echo(f"{name}: {shown[: 1000 - len(more)] if more else shown}{more}")
    for note in card.notes:
        echo(f"note: {note}")


@contextmanager
def claim_for(change: str, out: Path, restart: bool, **asked: Any) -> Iterator[None]:
    """Claim the output folder OUT for the command `tokenizer CHANGE` with the settings `asked`, so
    that no other command writes to it. Raises UsageError if OUT has a tokenizer made by another
    command or with other settings."""
    from curate.run.build import claim, disclaim
    from tokenize_kit.change.convert import FILES, target_file

    to = asked.get("to")
    alone, _ = target_file(out, to) if to in FILES else (False, out)
    files = [out] if alone else [out / name for name in (*FILES.values(), "tokenizer_card.json")]
    claim(out, files, {"command": f"tokenizer {change}", **asked}, restart)
    try:
        yield
    except LlmcurateError:
        disclaim(out, files)
        raise


def buffers(
    inputs: Sequence[str], quiet: bool, read: ReadSettings
) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Return a function that yields batches of the inputs' texts as (data: uint8[], offsets:
    int64[rows + 1]). Raises UsageError immediately if an input cannot be read."""
    from curate.inspect.tokenizers import Documents

    documents = Documents(inputs, quiet, read)
    return lambda: ((data, offsets) for data, offsets, _ in documents.batches())
