"""`llmcurate tokenizer convert`, `extend` and `prune`: tokenizers changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import Json, Restart, output, reading
from curate.cli.settings import command
from curate.cli.tokenizer import tokenizer_app
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.output import echo, echo_json

if TYPE_CHECKING:
    from curate.formats.read_settings import ReadSettings

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
    read: dict[str, Any],
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
    read: dict[str, Any],
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
    asked |= {"embeddings": embeddings, **read, **settings}
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
    read: dict[str, Any],
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
    _claim("prune", out, asked | read | settings, restart)
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
