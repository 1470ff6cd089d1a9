"""Tokenizers changed from the command line: converted, extended, pruned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.inspect.evaluate.tokenizers import Documents, translated
from curate.terminal.progress import say


def convert(
    tokenizer: Path, out: Path, to: str, pattern: str | None, verify: list[str], as_json: bool
) -> None:
    """Writes the tokenizer in another format and says on what it was verified."""
    from tokenize_kit.change.convert import convert as run
    from tokenize_kit.errors import TokenizerError

    try:
        texts = _buffers(verify, as_json) if verify else None
        card = run(tokenizer, out, to, pattern=pattern, batches=texts)
    except TokenizerError as error:
        raise translated(error) from None
    if as_json:
        print(json.dumps({"out": str(out), **card}, ensure_ascii=False))
        return
    say(f"wrote {out}", False)
    texts = card["verified_texts"]
    print(
        f"the same ids in {texts - card['ties']:,} of {texts:,} texts"
        f" ({card['verified_bytes']:,} bytes) as {card['source']}"
    )
    names = ["pattern", "pat_str", "special_tokens"] if to == "tiktoken" else []
    for name in [*names, "tokenizer.ggml.pre"]:
        if card.get(name):
            print(f"{name}: {card[name]}")
    for note in card["notes"]:
        print(f"note: {note}")


def extend(
    tokenizer: Path,
    corpus: list[str],
    add: int,
    out: Path,
    embeddings: Path | None,
    settings: dict[str, Any],
    as_json: bool,
) -> None:
    """Writes the extended tokenizer and says what it is worth on held-out texts."""
    from tokenize_kit.change.extend import extend as run
    from tokenize_kit.errors import TokenizerError

    try:
        texts = _buffers(corpus, as_json)
        card = run(tokenizer, texts, out, add, embeddings=embeddings, **settings)
    except TokenizerError as error:
        raise translated(error) from None
    if as_json:
        print(json.dumps({"out": str(out), **card}, ensure_ascii=False))
        return
    say(f"wrote {out}", False)
    first, more = card["first_new_id"], card["new_tokens"]
    print(f"{more:,} new tokens, ids {first:,} to {first + more - 1:,}; old ids are as they were")
    _figures(card)


def prune(
    tokenizer: Path,
    on: list[str],
    out: Path,
    keep_used: int | None,
    min_count: int | None,
    embeddings: Path | None,
    tensors: tuple[str, ...],
    as_json: bool,
) -> None:
    """Writes the smaller tokenizer and says what it costs on the texts it was made for."""
    from tokenize_kit.change.prune import prune as run
    from tokenize_kit.errors import TokenizerError

    if (keep_used is None) == (min_count is None):
        raise UsageError("prune: give --keep-used N or --min-count K, one of them")
    documents = Documents(on, as_json)
    try:
        card = run(
            tokenizer,
            lambda: ((data, offsets) for data, offsets, _ in documents.batches()),
            out,
            most=keep_used,
            least=min_count or 1,
            embeddings=embeddings,
            tensors=tensors,
        )
    except TokenizerError as error:
        raise translated(error) from None
    if as_json:
        print(json.dumps({"out": str(out), **card}, ensure_ascii=False))
        return
    say(f"wrote {out}", False)
    print(
        f"{card['new_tokens']:,} of {card['old_tokens']:,} tokens stay ({card['map']} has their"
        f" ids); the same tokens in {card['texts_without_dropped_tokens']:,} of"
        f" {card['measured_texts']:,} texts"
    )
    _figures(card)


def _figures(card: dict[str, Any]) -> None:
    before, after = card["bytes_a_token_before"], card["bytes_a_token_after"]
    print(
        f"bytes a token: {before:.3f} before, {after:.3f} after"
        f" ({card['measured_texts']:,} texts, {card['measured_bytes']:,} bytes)"
    )
    unknown = card.get("unknown_before_and_after")
    if unknown and any(unknown):
        print(f"unknown tokens, each perhaps a word: {unknown[0]:,} before, {unknown[1]:,} after")
    if "embeddings" in card:
        about = card["embeddings"]
        names = ", ".join(about["tensors"].values())
        print(f"{about['file']}: {names} ({'tied' if about['tied'] else 'not tied'})")
    for note in card["notes"]:
        print(f"note: {note}")


def _buffers(inputs: list[str], quiet: bool) -> Iterator[tuple[Any, Any]]:
    """(data, offsets) of the documents of some inputs; what cannot be read is refused first."""
    documents = Documents(inputs, quiet)
    return ((data, offsets) for data, offsets, _ in documents.batches())
