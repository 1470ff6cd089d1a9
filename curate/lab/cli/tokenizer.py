"""`llmcurate tokenizer study`, `extend` and `prune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import (
    DryRun,
    Json,
    Page,
    Quiet,
    ReadOptions,
    Restart,
    reading,
)
from curate.cli.settings import command
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo, echo_json, say

if TYPE_CHECKING:
    from tokenize_kit.lab.extend import ExtendedCard
    from tokenize_kit.lab.join import JoinedCard
    from tokenize_kit.lab.prune import PrunedCard
from curate.cli.tokenizer import Out, Source, buffers, claim_for, tokenizer_app


@command(tokenizer_app, "TokenizerStudy", "study")
def tokenizer_study(
    inputs: Annotated[
        list[str], typer.Argument(metavar="IN...", help="Texts such as the training texts.")
    ],
    out: Page = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Compare sizes of a BPE vocabulary.

    It shows bytes per token against the parameters of the embedding.

    \b
    Example:
    llmcurate tokenizer study corpus/ --vocab 5000,25000,50000 -o study
    """
    from curate.api.command_settings import TokenizerStudy
    from curate.lab.evaluate.tokenizers import study

    chosen = TokenizerStudy.of(**settings)
    if dry_run:
        echo(f"would train BPE vocabularies on {', '.join(inputs)}, sizes {chosen.vocab}")
        return
    how = (chosen.digits, chosen.width, chosen.worth, chosen.dictionary)
    study(inputs, chosen.vocab, *how, reading(read), quiet or as_json).show(out, as_json)


@command(tokenizer_app, "TokenizerExtend", "extend")
def extend(
    tokenizer: Source,
    out: Out,
    other: Annotated[
        Optional[Path],
        typer.Option(
            "--from", metavar="TOKENIZER", help="Add the tokens of this tokenizer that are missing."
        ),
    ] = None,
    restart: Restart = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Add tokens of a corpus or of another tokenizer.

    It works on BPE and Unigram tokenizers and keeps all old ids. With --embeddings it also extends
    the embeddings of a model.

    \b
    Examples:
    llmcurate tokenizer extend tok --on thai/ --vocab 42000 -o tok-th
    llmcurate tokenizer extend tok --from xlmr.model --scripts=-Thai -o tok-xl
    llmcurate tokenizer extend tok --on thai/ --vocab 42000 -o tok-th --embeddings model.safetensors
    """
    from curate.api.command_settings import TokenizerExtend
    from tokenize_kit.change.original import open_tokenizer
    from tokenize_kit.lab.addition import Rows
    from tokenize_kit.lab.extend import extend as learn
    from tokenize_kit.lab.join import JoinedCard, join

    chosen = TokenizerExtend.of(**settings)
    if (other is None) != (bool(chosen.on) and chosen.vocab is not None):
        raise UsageError("extend: give --on CORPUS and --vocab N, or --from TOKENIZER")
    if other is None and chosen.scripts:
        raise UsageError("extend: --scripts needs --from TOKENIZER")
    texts = buffers(chosen.on, quiet or as_json, reading(read)) if chosen.on else None
    asked = {"tokenizer": tokenizer, "from": other, **read.given(), **settings}
    with claim_for("extend", out, restart, **asked):
        rows = None
        if chosen.embeddings:
            rows = Rows(chosen.embeddings, chosen.tensor, chosen.init, texts)
        card: ExtendedCard | JoinedCard
        if other:
            card = join(tokenizer, other, out, scripts=chosen.scripts, rows=rows, batches=texts)
        elif texts and chosen.vocab:
            more = chosen.vocab - open_tokenizer(tokenizer).size
            card = learn(tokenizer, texts(), out, more, least=chosen.min_frequency, rows=rows)
    if as_json:
        echo_json({"out": str(out), **card.json()})
        return
    say(f"wrote {out}", quiet)
    first, more = card.first_new_id, card.new_tokens
    echo(f"{more:,} new tokens, ids {first:,} to {first + more - 1:,}; old ids are unchanged")
    if isinstance(card, JoinedCard):
        echo(
            f"of {counted(card.joined_tokens, 'token')} of {other}:"
            f" {card.common_tokens:,} in both, {card.other_scripts:,} of other scripts,"
            f" {card.left_out:,} left out (no text produces them)"
        )
        if card.scores_raised:
            echo(f"{card.scores_raised:,} scores raised above those of the pieces they consist of")
    _figures(card)


@command(tokenizer_app, "TokenizerPrune", "prune")
def prune(
    tokenizer: Source,
    out: Out,
    restart: Restart = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Drop tokens that the texts do not use.

    It works on BPE and Unigram tokenizers.

    \b
    Examples:
    llmcurate tokenizer prune tok --on thai/ --min-count 1 -o tok-small
    """
    from curate.api.command_settings import TokenizerPrune
    from tokenize_kit.lab.prune import prune as run

    chosen = TokenizerPrune.of(**settings)
    if (chosen.vocab is None) == (chosen.min_count is None):
        raise UsageError("prune: give one of --vocab N and --min-count K")
    if not chosen.on:
        raise UsageError("prune: give the texts to count tokens in: --on CORPUS")
    texts = buffers(chosen.on, quiet or as_json, reading(read))
    with claim_for("prune", out, restart, tokenizer=tokenizer, **read.given(), **settings):
        card = run(
            tokenizer,
            texts,
            out,
            most=chosen.vocab,
            least=chosen.min_count or 1,
            embeddings=chosen.embeddings,
            tensors=chosen.tensor,
        )
    if as_json:
        echo_json({"out": str(out), **card.json()})
        return
    say(f"wrote {out}", quiet)
    echo(
        f"kept {card.new_tokens:,} of {counted(card.old_tokens, 'token')} (new ids: {card.map});"
        f" {card.texts_without_dropped_tokens:,} of {counted(card.measured_texts, 'text')} have the"
        " same tokens as before"
    )
    _figures(card)


def _figures(card: ExtendedCard | JoinedCard | PrunedCard) -> None:
    if card.measured_texts is not None:
        echo(
            f"bytes per token: {card.bytes_a_token_before:.3f} before,"
            f" {card.bytes_a_token_after:.3f} after ({counted(card.measured_texts, 'text')},"
            f" {card.measured_bytes:,} bytes)"
        )
    unknown = getattr(card, "unknown_before_and_after", None)
    if unknown and any(unknown):
        echo(f"unknown tokens: {unknown[0]:,} before, {unknown[1]:,} after")
    if about := card.embeddings:
        names = ", ".join(about.tensors.values())
        echo(f"{about.file}: {names} ({'tied' if about.tied else 'not tied'})")
    for note in card.notes:
        echo(f"note: {note}")
