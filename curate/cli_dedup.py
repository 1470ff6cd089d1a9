"""`llmcurate dedup`."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from curate.cli_group import DEFAULT, DefaultGroup
from curate.cli_options import DryRun, Inputs, Json, Out, Quiet, Workers, how_of

dedup_app = typer.Typer(cls=DefaultGroup, rich_markup_mode=None, help="Keep one of each copy.")


@dedup_app.command(DEFAULT, hidden=True)
def dedup(
    inputs: Inputs = None,
    out: Out = None,
    method: Annotated[
        str, typer.Option(help="How copies are found: exact, minhash, lines or sentences.")
    ] = "exact",
    key: Annotated[str, typer.Option(help="What is compared: text or url.")] = "text",
    survivor: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="longest (default), newest, c4 (default of lines and sentences: least md5 of the"
            " URL), first, best:COLUMN or prefer-source:A,B."
        ),
    ] = None,
    normalize: Annotated[
        Optional[bool],  # noqa: UP045
        typer.Option(help="Compare normal forms (text: case and spaces; url: as C4 does)."),
    ] = None,
    preset: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Bands and rows of fineweb (default), lee2022, refinedweb or dclm."),
    ] = None,
    bands: Annotated[Optional[int], typer.Option(help="Bands of a signature.")] = None,  # noqa: UP045
    rows: Annotated[Optional[int], typer.Option(help="Rows of a band.")] = None,  # noqa: UP045
    verify: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Least exact Jaccard similarity of a match."),
    ] = None,
    ngram: Annotated[Optional[int], typer.Option(help="Units a shingle: 5 words.")] = None,  # noqa: UP045
    shingle: Annotated[Optional[str], typer.Option(help="word, char or byte.")] = None,  # noqa: UP045
    span: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Sentences that are compared together: 3."),
    ] = None,
    min_sentences: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Least sentences left of a document that lost some: 3."),
    ] = None,
    min_words: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Least words left of it: 0 for lines, 50 for sentences."),
    ] = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Keep one of each set of copies, of documents or of passages; decisions.parquet says which.

    Example: llmcurate dedup corpus/ -o out --method exact --key url --survivor newest

    Near duplicates: llmcurate dedup corpus/ -o out --method minhash --verify 0.8

    Lines that stand elsewhere, cut as C4 does: llmcurate dedup corpus/ -o out --method lines
    """
    from curate import commands

    how = how_of(out, workers, as_json, dry_run, quiet)
    near = {"preset": preset, "bands": bands, "rows": rows, "verify": verify}
    near |= {"ngram": ngram, "shingle": shingle}
    near = {name: value for name, value in near.items() if value is not None}
    passage = {"span": span, "min_sentences": min_sentences, "min_words": min_words}
    passage = {name: value for name, value in passage.items() if value is not None}
    commands.dedup(method, key, survivor, normalize, near, passage, inputs or [], how)
