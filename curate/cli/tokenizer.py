"""`llmcurate tokenizer`: train, judge and change tokenizers; encode token shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import (
    CommandOptions,
    Inputs,
    Json,
    Quiet,
    ReadOptions,
    Restart,
    Sets,
    group,
    newest,
    output,
    reading,
)
from curate.cli.settings import command
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.output import echo, echo_json

if TYPE_CHECKING:
    from curate.formats.read_settings import ReadSettings
    from curate.run.outcome import Outcome

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
    from curate.cli.execution import run_steps

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
    from curate.cli.execution import run_steps

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
    read: ReadOptions,
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
    from dataclasses import replace

    from curate.cli.tokenizer_settings import TokenizerEval
    from curate.inspect.evaluate.tokenizers import evaluate
    from curate.inspect.results import check_folder
    from llmcurate.base.terminal.tables import coloured

    check_folder(out)
    chosen = TokenizerEval.of(settings)
    options = chosen.model_dump(exclude={"color"})
    evaluation = evaluate(tokenizers, on, quiet=as_json, read=reading(read), **options)
    colours = coloured(sys.stdout) if chosen.color is None else chosen.color
    width = shutil.get_terminal_size().columns
    replace(evaluation, width=width, colours=colours).show(out, as_json, colours)


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
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Show what two tokenizers differ in.

    Compares tokens, ids, merges, special tokens and settings; with --on how texts are cut.

    \b
    Example:
    llmcurate tokenizer diff tok other/tokenizer.json --on corpus/ -o diff
    """
    import shutil
    from dataclasses import replace

    from curate.cli.tokenizer_settings import TokenizerDiff
    from curate.inspect.evaluate.tokenizers_diff import diff
    from curate.inspect.results import check_folder

    check_folder(out)
    options = TokenizerDiff.of(settings).model_dump()
    found = diff((first, second), on or [], quiet=as_json, read=reading(read), **options)
    replace(found, width=shutil.get_terminal_size().columns).show(out, as_json)


@command(tokenizer_app, "TokenizerStudy", "study")
def tokenizer_study(
    inputs: Annotated[
        list[str], typer.Argument(metavar="IN...", help="Texts like those to train on.")
    ],
    out: Annotated[Optional[Path], output("Folder for study.json and study.html.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
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
    from curate.inspect.results import check_folder

    chosen = TokenizerStudy.of(settings)
    check_folder(out)
    how = (chosen.digits, chosen.width, chosen.worth, chosen.dictionary)
    study(inputs, chosen.vocab, *how, reading(read), quiet or as_json).show(out, as_json)


Source = Annotated[
    Path,
    typer.Argument(
        metavar="TOKENIZER", help="tokenizer.json or its folder, .model, .tiktoken or .gguf."
    ),
]
Out = Annotated[Path, output("Folder to write, or the file itself.")]
Embeddings = Annotated[
    Optional[Path],
    typer.Option(metavar="CHECKPOINT", help="safetensors file whose embeddings are changed alike."),
]
Tensors = Annotated[
    Optional[list[str]],
    typer.Option(
        "--tensor",
        metavar="TEXT",
        help="Name of the embeddings where it is not a usual one; input, then output. [repeatable]",
    ),
]


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
    verify: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="DATA",
            help="Texts whose ids must not change. The default is a set of hard ones. [repeatable]",
        ),
    ] = None,
    restart: Restart = False,
    as_json: Json = False,
    *,
    read: ReadOptions,
) -> None:
    """Write a tokenizer in another format, with the same ids.

    Where that cannot be it says why, and writes nothing.

    \b
    Example:
    llmcurate tokenizer convert spm.model --to tokenizer.json -o tok
    """
    from llmcurate.base.terminal.progress import say
    from tokenize_kit.change.convert import convert as run

    asked = {"tokenizer": tokenizer, "to": to, "pattern": pattern}
    texts = _buffers(verify, as_json, reading(read)) if verify else None
    _claim("convert", out, asked, restart, to)
    card = run(tokenizer, out, to, pattern=pattern, batches=texts and texts())
    if as_json:
        echo_json({"out": str(out), **card})
        return
    say(f"wrote {out}", False)
    count = card["verified_texts"]
    echo(
        f"the same ids in {count - card['ties']:,} of {counted(count, 'text')}"
        f" ({card['verified_bytes']:,} bytes) as {card['source']}"
    )
    names = ["pattern", "pat_str", "special_tokens"] if to == "tiktoken" else []
    for name in [*names, "tokenizer.ggml.pre"]:
        if card.get(name):
            echo(f"{name}: {card[name]}")
    for note in card["notes"]:
        echo(f"note: {note}")


@command(tokenizer_app, "TokenizerExtend", "extend")
def extend(
    tokenizer: Source,
    out: Out,
    corpus: Annotated[
        Optional[list[str]],
        typer.Option(
            "--with",
            metavar="CORPUS",
            help="Texts to learn from, or with --from to measure on. [repeatable]",
        ),
    ] = None,
    add: Annotated[
        Optional[int], typer.Option(metavar="INTEGER", min=1, help="Most tokens to learn.")
    ] = None,
    other: Annotated[
        Optional[Path],
        typer.Option(
            "--from", metavar="TOKENIZER", help="Tokenizer whose tokens are added, those it lacks."
        ),
    ] = None,
    embeddings: Embeddings = None,
    tensor: Tensors = None,
    restart: Restart = False,
    as_json: Json = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Add tokens of a corpus or of another tokenizer.

    It works on BPE and Unigram tokenizers. Old ids stay. With --embeddings the embeddings of a
    model grow too.

    \b
    Examples:
    llmcurate tokenizer extend tok --with thai/ --add 10000 -o tok-th
    llmcurate tokenizer extend tok --from xlmr.model --scripts=-Thai -o tok-xl
    llmcurate tokenizer extend tok --with thai/ --add 10000 -o tok-th --embeddings model.safetensors
    """
    from curate.cli.tokenizer_settings import TokenizerExtend
    from llmcurate.base.terminal.progress import say
    from tokenize_kit.change.addition import Rows
    from tokenize_kit.change.extend import extend as learn
    from tokenize_kit.change.join import join

    chosen = TokenizerExtend.of(settings)
    if (other is None) != (corpus is not None and add is not None):
        raise UsageError("extend: give --with CORPUS and --add N, or --from TOKENIZER")
    if other is None and chosen.scripts:
        raise UsageError("extend: --scripts is for --from TOKENIZER")
    texts = _buffers(corpus, as_json, reading(read)) if corpus else None
    asked = {"tokenizer": tokenizer, "with": corpus, "add": add, "from": other}
    asked |= {"embeddings": embeddings} | read.given() | settings
    _claim("extend", out, asked, restart)
    rows = None
    if embeddings:
        rows = Rows(embeddings, tuple(tensor or ()), chosen.init, chosen.seed, texts)
    if other:
        card = join(tokenizer, other, out, scripts=chosen.scripts, rows=rows, batches=texts)
    elif texts and add:
        card = learn(tokenizer, texts(), out, add, least=chosen.min_frequency, rows=rows)
    if as_json:
        echo_json({"out": str(out), **card})
        return
    say(f"wrote {out}", False)
    first, more = card["first_new_id"], card["new_tokens"]
    echo(f"{more:,} new tokens, ids {first:,} to {first + more - 1:,}; old ids are as they were")
    if other:
        echo(
            f"of {counted(card['joined_tokens'], 'token')} of {other}: {card['common_tokens']:,} in"
            f" both, {card['other_scripts']:,} of other scripts, {card['left_out']:,} left out,"
            " as no text gives them"
        )
        if card["scores_raised"]:
            echo(f"{card['scores_raised']:,} scores raised above those of the pieces' parts")
    _figures(card)


@command(tokenizer_app, "TokenizerPrune", "prune")
def prune(
    tokenizer: Source,
    out: Out,
    on: Annotated[
        Optional[list[str]],
        typer.Option("--on", metavar="CORPUS", help="Texts to count on. [repeatable]"),
    ] = None,
    common: Annotated[
        Optional[Path],
        typer.Option(
            "--common-with",
            metavar="TOKENIZER",
            help="Tokenizer whose tokens stay, whatever texts use; the others go.",
        ),
    ] = None,
    embeddings: Embeddings = None,
    tensor: Tensors = None,
    restart: Restart = False,
    as_json: Json = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Drop tokens that texts or another tokenizer lack.

    It works on BPE and Unigram tokenizers.

    \b
    Examples:
    llmcurate tokenizer prune tok --on thai/ --min-count 1 -o tok-small
    llmcurate tokenizer prune tok --common-with other -o tok-both
    """
    from curate.cli.tokenizer_settings import TokenizerPrune
    from llmcurate.base.terminal.progress import say
    from tokenize_kit.change.prune import prune as run

    chosen = TokenizerPrune.of(settings)
    if sum(way is not None for way in (chosen.keep_used, chosen.min_count, common)) != 1:
        raise UsageError(
            "prune: give --keep-used N, --min-count K or --common-with TOKENIZER, one of them"
        )
    if common is None and not on:
        raise UsageError("prune: give texts to count on, --on CORPUS")
    asked = {"tokenizer": tokenizer, "on": on, "common_with": common, "embeddings": embeddings}
    texts = _buffers(on, as_json, reading(read)) if on else None
    _claim("prune", out, asked | read.given() | settings, restart)
    card = run(
        tokenizer,
        texts,
        out,
        most=chosen.keep_used,
        least=chosen.min_count or 1,
        common=common,
        embeddings=embeddings,
        tensors=tuple(tensor or ()),
    )
    if as_json:
        echo_json({"out": str(out), **card})
        return
    say(f"wrote {out}", False)
    echo(
        f"{card['new_tokens']:,} of {counted(card['old_tokens'], 'token')} stay ({card['map']}"
        " has their"
        f" ids); the same tokens in {card['texts_without_dropped_tokens']:,} of"
        f" {counted(card['measured_texts'], 'text')}"
    )
    _figures(card)


def _claim(
    change: str, out: Path, asked: dict[str, Any], restart: bool, to: str | None = None
) -> None:
    """Refuses an OUT that holds a tokenizer of another command, or of other settings."""
    from curate.run.made import claim
    from tokenize_kit.change.convert import FILES, target_file

    alone, _ = target_file(out, to) if to in FILES else (False, out)
    files = [out] if alone else [out / name for name in (*FILES.values(), "tokenizer_card.json")]
    claim(out, files, {"command": f"tokenizer {change}", **asked}, restart)


def _figures(card: dict[str, Any]) -> None:
    if "measured_texts" in card:
        before, after = card["bytes_a_token_before"], card["bytes_a_token_after"]
        echo(
            f"bytes a token: {before:.3f} before, {after:.3f} after"
            f" ({counted(card['measured_texts'], 'text')}, {card['measured_bytes']:,} bytes)"
        )
    unknown = card.get("unknown_before_and_after")
    if unknown and any(unknown):
        echo(f"unknown tokens, each perhaps a word: {unknown[0]:,} before, {unknown[1]:,} after")
    if "embeddings" in card:
        about = card["embeddings"]
        names = ", ".join(about["tensors"].values())
        echo(f"{about['file']}: {names} ({'tied' if about['tied'] else 'not tied'})")
    for note in card["notes"]:
        echo(f"note: {note}")


def _buffers(
    inputs: list[str], quiet: bool, read: ReadSettings
) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """What reads (data, offsets) of the documents of some inputs; those that cannot be read are
    refused first."""
    from curate.inspect.evaluate.tokenizers import Documents

    documents = Documents(inputs, quiet, read)
    return lambda: ((data, offsets) for data, offsets, _ in documents.batches())
