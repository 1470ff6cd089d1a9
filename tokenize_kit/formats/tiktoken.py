"""tiktoken's files of ranks (openai/tiktoken, tiktoken/load.py and src/lib.rs).

A line is a token in base64 and its rank, which is its id. Two neighbours merge where their bytes
together are a token, the lowest rank first, the leftmost of equals; a piece that is a token is that
token.
"""

from __future__ import annotations

import base64
import binascii
from itertools import pairwise

from tokenize_kit.formats.forms import Added, ByteBpe, CannotHold
from tokenize_kit.pattern.named import PATTERNS, pattern_with

# tiktoken takes one pattern, not one after the other; BERT's leaves white space out.
PATTERN_NAMES = tuple(
    n for n, pattern in PATTERNS.items() if len(pattern.parts) == 1 and n != "bert"
)
LARGEST = 1 << 24  # ids; published files have 200,000
# Special tokens of the published files, which do not hold them: pattern, highest rank, and ids
# (tiktoken_ext/openai_public.py; meta-llama/llama-models, llama3/tokenizer.py).
_SPECIAL: dict[tuple[str, int], dict[str, int]] = {
    ("gpt2", 50_255): {"<|endoftext|>": 50_256},
    ("cl100k", 100_255): {
        "<|endoftext|>": 100_257,
        "<|fim_prefix|>": 100_258,
        "<|fim_middle|>": 100_259,
        "<|fim_suffix|>": 100_260,
        "<|endofprompt|>": 100_276,
    },
    ("o200k", 199_997): {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018},
    ("llama3", 127_999): {"<|begin_of_text|>": 128_000, "<|end_of_text|>": 128_001},
}


def special_of(pattern: str, highest: int) -> dict[str, int]:
    """Special tokens of a file with that highest rank: those published for it, else
    `<|endoftext|>` behind it."""
    return _SPECIAL.get((pattern, highest), {"<|endoftext|>": highest + 1})


def read_ranks(raw: bytes) -> dict[bytes, int]:
    """Token to rank; raises ValueError, naming the line, for what is no such file."""
    ranks: dict[bytes, int] = {}
    seen: set[int] = set()
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            spelled, position = line.split()
            token, rank = base64.b64decode(spelled, validate=True), int(position)
        except (ValueError, binascii.Error):
            raise ValueError(f"line {number} is not a token in base64 and its rank") from None
        if not token or not 0 <= rank < LARGEST:
            raise ValueError(f"line {number}: no token, or a rank of {LARGEST:,} or more")
        if token in ranks or rank in seen:
            raise ValueError(f"line {number}: a token or rank that was there before")
        ranks[token] = rank
        seen.add(rank)
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise ValueError("it does not have all 256 bytes")
    return ranks


def from_ranks(raw: bytes, pattern: str) -> ByteBpe:
    """The form of tiktoken's ranks; pattern: one of PATTERN_NAMES.

    A token's merge is of the two parts that lower ranks make of it. One of which they make more is
    had from a piece of text that is the token, and by no merge. Raises ValueError for other files.
    """
    ranks = read_ranks(raw)
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1 and len(parts := _merge(ranks, token, rank)) == 2:
            merges.append((parts[0], parts[1]))
    special = special_of(pattern, max(ranks.values()))
    added = tuple(Added(name, number, True) for name, number in special.items())
    cut = pattern_with(pattern, PATTERNS[pattern].digits).parts
    return ByteBpe(ranks, tuple(merges), cut, added, True)


def _merge(ranks: dict[bytes, int], token: bytes, below: int) -> list[bytes]:
    """The parts of a token after merges of ranks below a number, the lowest first."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 1:
        ranks_of_pairs = [ranks.get(a + b, below) for a, b in pairwise(parts)]
        least = min(ranks_of_pairs)
        if least >= below:
            break
        at = ranks_of_pairs.index(least)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def to_ranks(form: ByteBpe) -> bytes:
    """As a file of ranks; CannotHold where merging by rank of the result is something else."""
    if len(form.parts) != 1:
        raise CannotHold(
            f"tiktoken cuts text by one pattern, this tokenizer by {len(form.parts)}"
            " one after the other"
        )
    if any(not token.special for token in form.added):
        raise CannotHold("tiktoken has no added tokens other than special ones")
    ids = [form.tokens[a + b] for a, b in form.merges]
    if ids != sorted(ids):
        raise CannotHold("its merges are not given by ranks: their order is not that of the ids")
    parts = {a + b: [a, b] for a, b in reversed(form.merges)}
    for token, rank in form.tokens.items():
        if len(token) == 1:
            continue
        if form.whole and token not in parts:
            pairs = ((token[:k], token[k:]) for k in range(1, len(token)))
            other = any(a in form.tokens and b in form.tokens for a, b in pairs)
        else:
            other = _merge(form.tokens, token, rank) != parts.get(token)
        if other:
            shown = token.decode("utf-8", "backslashreplace")
            raise CannotHold(
                f"its merges are not given by ranks: tiktoken makes {shown!r} of other parts"
            )
    lines = [
        base64.b64encode(token) + f" {rank}\n".encode()
        for token, rank in sorted(form.tokens.items(), key=lambda item: item[1])
    ]
    return b"".join(lines)
