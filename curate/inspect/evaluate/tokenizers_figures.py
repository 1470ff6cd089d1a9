"""The rows of the table that compares tokenizers: titles, and how figures are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NONE = "-"


def whole(value: float | None) -> str:
    """A count."""
    return NONE if value is None else f"{value:,}"


def ratio(value: float | None) -> str:
    """Three decimals; one from a hundred on."""
    if value is None:
        return NONE
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"


def share(value: float | None) -> str:
    """A share of one as per cent; what is not nothing is not shown as nothing."""
    if value is None:
        return NONE
    return "< 0.01 %" if 0 < value < 0.0001 else f"{100 * value:.2f} %"


def speed(value: float | None) -> str:
    """MB/s."""
    return NONE if value is None else f"{value:.3g}"


# key, title, how it is written, which is better (+1 more, -1 less, 0 neither)
ROWS: tuple[tuple[str, str, Callable[[Any], str], int], ...] = (
    ("vocab", "vocabulary", whole, 0),
    ("bytes_a_token", "bytes a token", ratio, 1),
    ("characters_a_token", "characters a token", ratio, 1),
    ("nsl", "tokens over the baseline's (NSL)", ratio, -1),
    ("fertility", "tokens a word (fertility)", ratio, -1),
    ("whole_share", "words kept whole", share, 1),
    ("tokens_a_letter", "tokens a letter, scripts without spaces", ratio, -1),
    ("gini_a_byte", "Gini of languages, tokens a byte", ratio, -1),
    ("gini_a_character", "Gini of languages, a character", ratio, -1),
    ("gini_a_text", "Gini of languages, a text", ratio, -1),
    ("unknown_share", "unknown tokens", share, -1),
    ("parts_share", "tokens that are parts of characters", share, -1),
    ("renyi_efficiency", "Rényi efficiency", ratio, 1),
    ("renyi_efficiency_of_used", "  of the tokens that occur", ratio, 1),
    ("used_share", "vocabulary used", share, 0),
    ("never_used", "tokens never used", whole, 0),
    ("unreachable", "tokens that no text gives", whole, -1),
    ("parts_of_characters", "tokens of parts of characters", whole, 0),
    ("white_space", "tokens of white space only", whole, 0),
    ("digits", "tokens of digits only", whole, 0),
    ("lost", "texts that do not come back", whole, -1),
    ("encode_mb_per_cpu_second", "encoding, MB/s of CPU time", speed, 1),
    ("decode_mb_per_cpu_second", "decoding, MB/s of CPU time", speed, 1),
)
RATES = frozenset({"encode_mb_per_cpu_second", "decode_mb_per_cpu_second"})


def rows(found: list[dict[str, Any]]) -> list[tuple[str, list[str], list[int]]]:
    """(title, a cell a tokenizer, the places of the best) of every figure that is not missing
    everywhere. No best of one, of what reads the same in all, or of speeds, which no two runs
    share."""
    lines = []
    for key, title, write, better in ROWS:
        values = [one.get(key) for one in found]
        if all(v is None for v in values):
            continue
        cells = [write(v) for v in values]
        known = [v for v in values if v is not None]
        best: list[int] = []
        if better and len(set(cells) - {NONE}) > 1 and key not in RATES:
            top = write(max(known) if better > 0 else min(known))
            best = [i for i, cell in enumerate(cells) if cell == top]
        lines.append((title, cells, best))
    return lines
