"""`llmcurate perplexity score` and `convert`."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import pyarrow as pa

from curate.errors import UsageError

_SHOWN = 100  # characters of a text in the table
_BATCH = 1000


def _texts(file: Path | None, by: str) -> list[str]:
    """What is scored, blank pieces left out."""
    if by not in ("line", "paragraph", "document"):
        raise UsageError(f"--by {by}: line, paragraph or document")
    try:
        if file is None or str(file) == "-":
            raw = sys.stdin.buffer.read()
        else:
            raw = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    text = raw.decode("utf-8", "replace")
    if by == "document":
        found = [text]
    else:
        found = text.splitlines() if by == "line" else re.split(r"\n[^\S\n]*(?:\n[^\S\n]*)+", text)
    return [t for t in found if t.strip()]


def score(model: Path, file: Path | None, by: str, as_json: bool) -> None:
    """Prints a line a text: perplexity, words (ends of sentences included), log10, the text."""
    from curate.scoring.perplexity.model import NgramModel

    texts = _texts(file, by)
    opened = NgramModel.open(model, whole=True)
    if not as_json:
        print(f"{'perplexity':>12} {'words':>7} {'log10':>12}  text")
    for a in range(0, len(texts), _BATCH):
        part = texts[a : a + _BATCH]
        array = pa.array(part, pa.large_string())
        scores, values = opened.by_document(array), opened.perplexity(array)
        columns = (values, scores.length, scores.log10)
        rows = zip(*(c.tolist() for c in columns), part, strict=True)
        for value, length, log10, text in rows:
            known = not math.isnan(value)
            if as_json:
                row = {"perplexity": value if known else None, "words": length, "log10": log10}
                print(json.dumps({**row, "text": text}, ensure_ascii=False))
            else:
                said = " ".join(text.split())
                said = "".join(c if c.isprintable() else "\ufffd" for c in said[:_SHOWN])
                shown = f"{value:12.1f}" if known else f"{'none':>12}"
                print(f"{shown} {length:7d} {log10:12.3f}  {said}")


def convert(source: Path, target: Path, variant: str, unit: str, pieces: Path | None) -> None:
    """Writes the other form of a model."""
    from curate.scoring.perplexity.arpa import read_arpa, write_arpa
    from curate.scoring.perplexity.model_file import read_model, write_model
    from curate.scoring.perplexity.sentences import Unit, Variant, load_pieces

    if target.suffix == ".arpa":
        write_arpa(target, read_model(source, whole=True))
    else:
        if variant not in ("plain", "ccnet") or unit not in ("whitespace", "words"):
            raise UsageError("--variant is plain or ccnet, --unit whitespace or words")
        form: Variant = "ccnet" if variant == "ccnet" else "plain"
        cut: Unit = "words" if unit == "words" else "whitespace"
        data = b""
        if pieces is not None:
            try:
                data = pieces.read_bytes()
            except OSError as error:
                raise UsageError(f"cannot read {pieces}: {error.strerror}") from None
            load_pieces(data, str(pieces))
            cut = "pieces"
        write_model(target, read_arpa(source, form, cut, data, {"arpa": source.name}))
    print(f"wrote {target}")
