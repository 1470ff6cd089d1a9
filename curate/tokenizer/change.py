"""Tokenizers changed from the command line: converted, extended, pruned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curate.progress import say
from curate.tokenizer.evaluate import Documents, translated


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
    print(
        f"the same ids in {card['verified_texts']:,} texts ({card['verified_bytes']:,} bytes)"
        f" as {card['source']}"
    )
    for name in ("pattern", "pat_str", "special_tokens", "tokenizer.ggml.pre"):
        if card.get(name):
            print(f"{name}: {card[name]}")
    for note in card["notes"]:
        print(f"note: {note}")


def _buffers(inputs: list[str], quiet: bool) -> Iterator[tuple[Any, Any]]:
    """(data, offsets) of the documents of some inputs; what cannot be read is refused first."""
    documents = Documents(inputs, quiet)
    return ((data, offsets) for data, offsets, _ in documents.batches())
