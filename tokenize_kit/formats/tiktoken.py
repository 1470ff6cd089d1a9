"""tiktoken's files of ranks (openai/tiktoken, tiktoken/load.py and src/lib.rs).

Each line has a token in base64 and its rank, which is also its id. Two neighbours merge if their
bytes together are a token. The pair whose token has the lowest rank merges first, the leftmost of
equal pairs. A piece that is itself a token is not merged but becomes that token.
"""

from __future__ import annotations

import base64
import binascii
from itertools import pairwise

from tokenize_kit.formats.forms import Added, ByteBpe, CannotHold
from tokenize_kit.pattern.named import PATTERNS, pattern_with

# tiktoken supports a single pattern; BERT's drops white space.
PATTERN_NAMES = tuple(
    n for n, pattern in PATTERNS.items() if len(pattern.parts) == 1 and n != "bert"
)
LARGEST = 1 << 24  # ids; published files have 200,000
# Special tokens of published files, which do not list them: pattern and highest rank to ids
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
    """Return the special tokens of a file whose highest rank is `highest`: those published for the
    pattern, or, if none are published, `<|endoftext|>` with the next id."""
    return _SPECIAL.get((pattern, highest), {"<|endoftext|>": highest + 1})


def read_ranks(raw: bytes) -> dict[bytes, int]:
    """Return the rank of each token. Raises ValueError naming the line if the file is invalid."""
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
            raise ValueError(
                f"line {number}: an empty token, or a rank outside 0 to {LARGEST - 1:,}"
            )
        if token in ranks or rank in seen:
            raise ValueError(f"line {number}: a repeated token or rank")
        ranks[token] = rank
        seen.add(rank)
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise ValueError("it does not have all 256 bytes")
    return ranks


def from_ranks(raw: bytes, pattern: str) -> ByteBpe:
    """Return tiktoken's ranks as ByteBpe. pattern: one of PATTERN_NAMES. The merge of a token is
    found by merging its bytes by the lower ranks alone: if two parts are left, the merge joins
    them. If more parts are left, the token has no merge, and only a piece of text that equals the
    token becomes the token. Raises ValueError for invalid files."""
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
    """Return the bytes of a file of ranks. Raises CannotHold if ranks would give other tokens."""
    if len(form.parts) != 1:
        raise CannotHold(f"tiktoken supports one pattern, and this tokenizer has {len(form.parts)}")
    if any(not token.special for token in form.added):
        raise CannotHold("all added tokens of tiktoken are special")
    ids = [form.tokens[a + b] for a, b in form.merges]
    if ids != sorted(ids):
        raise CannotHold("ranks cannot express its merges: their order is not the order of ids")
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
                f"ranks cannot express its merges: tiktoken merges {shown!r} from other parts"
            )
    lines = [
        base64.b64encode(token) + f" {rank}\n".encode()
        for token, rank in sorted(form.tokens.items(), key=lambda item: item[1])
    ]
    return b"".join(lines)
