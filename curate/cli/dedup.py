"""`llmcurate dedup`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from typing import Annotated, Optional

import typer

from curate.cli.dedup_trials import clusters, compare, evaluate
from curate.cli.groups import DEFAULT, DefaultGroup
from curate.cli.options import (
    Address,
    DryRun,
    EngineName,
    Exchange,
    Inputs,
    Json,
    Out,
    Quiet,
    Scratch,
    Sets,
    Workers,
    how_of,
)

dedup_app = typer.Typer(cls=DefaultGroup, rich_markup_mode=None, help="Keep one of each copy.")
for _command in (clusters, compare, evaluate):
    dedup_app.command()(_command)


def _option(text: str) -> object:
    return typer.Option(help=text, show_default=False)


@dedup_app.command(DEFAULT, hidden=True)
def dedup(
    inputs: Inputs = None,
    out: Out = None,
    method: Annotated[
        str,
        typer.Option(
            help="How copies are found: exact, url, minhash, lines, sentences, paragraphs,"
            " suffix-array, bloom, semantic or newest; several one after the other with +, as in"
            " exact+minhash."
        ),
    ] = "exact",
    survivor: Annotated[
        Optional[str],
        _option(
            "longest (default), newest, c4 (default of lines, sentences and paragraphs: least md5"
            " of the URL), first (default of suffix-array and bloom), best:COLUMN or"
            " prefer-source:A,B."
        ),
    ] = None,
    against: Annotated[
        Optional[list[str]],
        _option("OUT (or NAME=OUT) of an earlier run: its documents count as seen; repeatable."),
    ] = None,
    max_removal: Annotated[
        Optional[float], _option("Stop where a larger share would go: 0.9.")
    ] = None,
    key: Annotated[Optional[str], _option("exact: what is compared, text or url.")] = None,
    normalize: Annotated[
        Optional[bool],
        _option("exact: compare normal forms (text: case and spaces; url: as C4 does)."),
    ] = None,
    hash: Annotated[
        Optional[str],
        _option("exact, lines, sentences, paragraphs: what is compared (llmcurate dedup hashes)."),
    ] = None,
    preset: Annotated[
        Optional[str],
        _option("minhash: bands and rows of fineweb (default), lee2022, refinedweb or dclm."),
    ] = None,
    bands: Annotated[Optional[int], _option("minhash: bands of a signature.")] = None,
    rows: Annotated[Optional[int], _option("minhash: rows of a band.")] = None,
    verify: Annotated[
        Optional[float], _option("minhash: least Jaccard similarity of a match.")
    ] = None,
    recall: Annotated[
        Optional[float],
        _option("minhash: choose bands and rows that find this share of pairs at --threshold."),
    ] = None,
    permutations: Annotated[
        Optional[int], _option("minhash: hashes that --threshold may take: 128.")
    ] = None,
    bits: Annotated[
        Optional[int],
        _option("minhash: verify by this many bits of each hash, with --verify-by signature."),
    ] = None,
    verify_by: Annotated[
        Optional[str], _option("minhash: shingles (exact, default) or signature (an estimate).")
    ] = None,
    ngram: Annotated[Optional[int], _option("minhash: units a shingle: 5 words.")] = None,
    shingle: Annotated[Optional[str], _option("minhash: word, char or byte.")] = None,
    span: Annotated[Optional[int], _option("sentences: how many are compared together: 3.")] = None,
    keep: Annotated[
        Optional[str],
        _option(
            "lines, sentences, paragraphs: copies that stay, one or none (CCNet); suffix-array:"
            " first, none or longest-context."
        ),
    ] = None,
    min_sentences: Annotated[
        Optional[int],
        _option(
            "lines, sentences, paragraphs: least sentences left of a document that lost some: 3,"
            " 0 for paragraphs."
        ),
    ] = None,
    min_words: Annotated[
        Optional[int],
        _option("lines, sentences, paragraphs: least words left of it: 0, 50 for sentences."),
    ] = None,
    threshold: Annotated[
        Optional[float],
        _option(
            "suffix-array: least length of a passage, 200 characters or 50 tokens; bloom: share of"
            " n-grams seen before, 0.8; minhash: Jaccard similarity that bands and rows aim at."
        ),
    ] = None,
    unit: Annotated[
        Optional[str], _option("suffix-array: characters, bytes or tokens (with --tokenizer).")
    ] = None,
    tokenizer: Annotated[
        Optional[str], _option("suffix-array: the tokenizer.json whose tokens count.")
    ] = None,
    boundary: Annotated[
        Optional[str], _option("suffix-array: cuts end at a character, word or line.")
    ] = None,
    min_chars: Annotated[
        Optional[int], _option("suffix-array: least characters left of a document: 0.")
    ] = None,
    mode: Annotated[
        Optional[str],
        _option(
            "bloom: old-both (default), both, paragraph, document (bff), dolma-paragraph or"
            " dolma-document."
        ),
    ] = None,
    false_positives: Annotated[
        Optional[float], _option("bloom: share of new n-grams taken for old ones: 0.01.")
    ] = None,
    embedding: Annotated[
        Optional[str], _option("semantic: hashed (default), or the folder of a model.")
    ] = None,
    epsilon: Annotated[
        Optional[float], _option("semantic: a cosine above 1 - epsilon is a copy: 0.07.")
    ] = None,
    prototypicality: Annotated[
        Optional[float], _option("semantic: share that stays of the rest, as in D4.")
    ] = None,
    sets: Sets = None,
    workers: Workers = 0,
    engine: EngineName = "local",
    address: Address = None,
    exchange: Exchange = None,
    scratch: Scratch = None,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Keep one of each set of copies, of documents or of passages; decisions.parquet says which.

    Example: llmcurate dedup corpus/ -o out --method exact --key url --survivor newest

    Near duplicates: llmcurate dedup corpus/ -o out --method minhash --verify 0.8

    Lines that stand elsewhere, cut as C4 does: llmcurate dedup corpus/ -o out --method lines

    As CCNet does: llmcurate dedup corpus/ -o out --method paragraphs --keep none --hash sha1-64

    Passages that stand elsewhere: llmcurate dedup corpus/ -o out --method suffix-array

    New documents beside an earlier run: llmcurate dedup new/ -o out2 --method minhash --against out
    """
    from curate.cli import commands

    options = {
        "survivor": survivor,
        "against": tuple(against) if against else None,
        "max_removal": max_removal,
        "key": key,
        "normalize": normalize,
        "hash": hash,
        "keep": keep,
        "preset": preset,
        "bands": bands,
        "rows": rows,
        "verify": verify,
        "recall": recall,
        "permutations": permutations,
        "bits": bits,
        "verify_by": verify_by,
        "ngram": ngram,
        "shingle": shingle,
        "span": span,
        "min_sentences": min_sentences,
        "min_words": min_words,
        "threshold": threshold,
        "unit": unit,
        "tokenizer": tokenizer,
        "boundary": boundary,
        "min_chars": min_chars,
        "mode": mode,
        "false_positives": false_positives,
        "embedding": embedding,
        "epsilon": epsilon,
        "prototypicality": prototypicality,
    }
    given = {name: value for name, value in options.items() if value is not None}
    how = how_of(out, workers, as_json, dry_run, quiet, engine, address, scratch, exchange)
    commands.dedup(method, given, tuple(sets or ()), inputs or [], how)


@dedup_app.command("hashes")
def hashes(
    documents: Annotated[
        int, typer.Option(help="Generated documents.", min=1, max=1_000_000)
    ] = 20_000,
    size: Annotated[int, typer.Option("--bytes", help="Bytes of each.", min=1, max=4000)] = 2000,
    as_json: Json = False,
) -> None:
    """Measure the hashes of exact dedup on this machine, beside their odds of a collision."""
    import json

    from curate.dedup.hashes import hash_speeds, hash_table

    rows = hash_speeds(documents, size)
    found = {"documents": documents, "bytes": size, "hashes": rows}
    typer.echo(json.dumps(found) if as_json else hash_table(rows, size))
