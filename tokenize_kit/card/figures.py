"""What a tokenizer makes of a sample of text, by the figures of `llmcurate tokenizer eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenize_kit.card.sample import Sample
from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.judge.tally import Tally

# Of `Tally.result`; no speeds, for a card has the same bytes wherever it is made.
_TAKEN = (
    "texts",
    "bytes",
    "characters",
    "tokens",
    "bytes_a_token",
    "characters_a_token",
    "fertility",
    "whole_share",
    "tokens_a_letter",
    "unknown_share",
    "parts_share",
    "used",
    "used_share",
    "unreachable",
    "lost",
)


def measured(file: Path, sample: Sample, on: str) -> dict[str, Any]:
    """Figures of the tokenizer in that file, as JSON values; a ratio of nothing is None.

    on: what the sample is of. Keys are those of evaluation.json, and `byte_share`: of tokens of one
    byte that a missing character is spelled in (None where the model has none), `first_lost`: the
    beginning of the first text that does not come back.
    """
    tally = Tally(open_candidate(file))
    tally.add(*sample.buffers())
    found = tally.result()
    spelled = sorted(tally.candidate.byte_ids)
    share = tally.counts[spelled].sum() / max(found["tokens"], 1) if spelled else None
    figures = {name: found[name] for name in _TAKEN}
    lost = found["first_lost"]
    figures |= {"byte_share": share, "first_lost": lost["was"][:40] if lost else None}
    rounded = {k: round(float(v), 6) if _is_ratio(v) else v for k, v in figures.items()}
    return {"on": on, "seed": sample.seed, **rounded}


def _is_ratio(value: Any) -> bool:
    return value is not None and not isinstance(value, int | str)
