"""`llmcurate tokenizer train`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.options import DryRun, Inputs, Json, Out, Quiet, Workers, how_of


def _option(text: str) -> object:
    return typer.Option(help=text, show_default=False)


def with_end_of_text(special: list[str], model: str = "bpe") -> tuple[str, ...]:
    """Special tokens of a command line, behind the usual ones where they have no end of text."""
    from tokenize_kit.formats.tokenizer_json import END_OF_TEXT
    from tokenize_kit.learn.options import BERT_TOKENS

    if any(token in END_OF_TEXT for token in special):
        return tuple(special)
    usual = BERT_TOKENS if model == "wordpiece" else END_OF_TEXT[:1]
    return (*usual, *special)


def _expressions(path: Path) -> tuple[str, ...]:
    """The regular expressions of a file, one a line; a line of # is a comment."""
    from curate.errors import UsageError

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None
    found = tuple(line for line in lines if line.strip() and not line.startswith("# "))
    if not found:
        raise UsageError(f"{path}: no regular expression in it; write one a line")
    return found


def train(
    inputs: Inputs = None,
    out: Out = None,
    vocab: Annotated[
        str,
        typer.Option(help="Tokens wanted, special ones included; 5000,32000: a folder a size."),
    ] = "32000",
    model: Annotated[
        str, typer.Option(help="bpe (byte level), char-bpe, wordpiece or unigram.")
    ] = "bpe",
    backend: Annotated[
        Optional[str],
        _option("Who learns: own (default), tokenizers (bpe) or sentencepiece (all models)."),
    ] = None,
    pattern: Annotated[
        Optional[str],
        _option(
            "How text is cut: o200k (default), gpt2, cl100k, llama3, qwen2, deepseek, whitespace or"
            " metaspace (default of char-bpe)."
        ),
    ] = None,
    digits: Annotated[
        Optional[str],
        _option(
            "single, triples, triples-right (1 234 567) or free; default: the pattern's own, single"
            " without --pattern."
        ),
    ] = None,
    pattern_file: Annotated[
        Optional[Path],
        _option("How text is cut, by regular expressions of your own: one a line, in order."),
    ] = None,
    graphemes: Annotated[
        bool, typer.Option("--graphemes", help="As o200k, never within a grapheme cluster.")
    ] = False,
    script_boundaries: Annotated[
        bool, typer.Option("--script-boundaries", help="No token spans two scripts.")
    ] = False,
    newlines: Annotated[
        Optional[str], _option("single: each a piece; runs: those in a row; default: the pattern.")
    ] = None,
    space_runs: Annotated[
        Optional[int], _option("Runs of 2 to so many spaces are a token each: 24 as GPT-NeoX.")
    ] = None,
    forbid: Annotated[
        Optional[list[str]], _option("A string that no token holds or spans; repeatable.")
    ] = None,
    dictionary: Annotated[
        Optional[Path],
        _option("Words, one a line, into which Thai, Lao, Khmer, Burmese are cut in training."),
    ] = None,
    space_token: Annotated[
        Optional[str], _option("A token that every space becomes: '<_>' as in WangchanBERTa.")
    ] = None,
    normalise: Annotated[
        str, typer.Option(help="none (every text comes back exactly), nfc, nfkc or nmt_nfkc.")
    ] = "none",
    chat_template: Annotated[
        Optional[Path], _option("Jinja file for tokenizer_config.json, checked that it parses.")
    ] = None,
    special: Annotated[
        Optional[list[str]],
        _option("A special token beside <|endoftext|>, or another end of text first; repeatable."),
    ] = None,
    reserved: Annotated[Optional[int], _option("Tokens <|reserved_0|>, ... for later.")] = None,
    pad_to: Annotated[
        Optional[int], _option("Reserved tokens up to a multiple of this: 128.")
    ] = None,
    min_frequency: Annotated[
        Optional[int], _option("Occurrences of a pair that is merged: 2.")
    ] = None,
    max_token_length: Annotated[
        Optional[int], _option("Bytes of a token at most; characters for char-bpe and wordpiece.")
    ] = None,
    character_coverage: Annotated[
        Optional[float],
        _option("Share of the text whose characters are tokens: 0.9995 (wordpiece: 1)."),
    ] = None,
    sample_bytes: Annotated[
        Optional[int], _option("Train on so much text at most, drawn by its hash.")
    ] = None,
    seed: Annotated[Optional[int], _option("Of the draw: 0.")] = None,
    weights: Annotated[
        Optional[str],
        _option("How often documents count, by a column: lang=th:3,en:0.5; * for other values."),
    ] = None,
    temperature: Annotated[
        Optional[float],
        _option("Give small values of --by more weight: shares of bytes to the power 1/T."),
    ] = None,
    by: Annotated[Optional[str], _option("Column of --temperature: lang (default).")] = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Train a tokenizer: tokenizer.json and its card.

    Example: llmcurate tokenizer train corpus/ -o tok --vocab 32000

    As Llama 3 cuts text, three sizes: llmcurate tokenizer train corpus/ -o tok --pattern llama3
    --vocab 8000,16000,32000 --pad-to 128
    """
    from curate.cli import commands

    options = {
        "vocab": vocab,
        "model": model,
        "backend": backend,
        "pattern": pattern,
        "regex": _expressions(pattern_file) if pattern_file else None,
        "graphemes": graphemes or None,
        "digits": digits,
        "forbid": tuple(forbid) if forbid else None,
        "newlines": newlines,
        "space_runs": space_runs,
        "script_boundaries": script_boundaries or None,
        "dictionary": str(dictionary) if dictionary else None,
        "space_token": space_token,
        "normalise": normalise,
        "chat_template": str(chat_template) if chat_template else None,
        "special_tokens": with_end_of_text(special, model) if special else None,
        "reserved": reserved,
        "pad_to": pad_to,
        "min_frequency": min_frequency,
        "max_token_length": max_token_length,
        "character_coverage": character_coverage,
        "sample_bytes": sample_bytes,
        "seed": seed,
        "weights": weights,
        "temperature": temperature,
        "by": by,
    }
    given = {name: value for name, value in options.items() if value is not None}
    steps = [("tokenizer", given)]
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.steps("tokenizer", steps, inputs or [], how)
