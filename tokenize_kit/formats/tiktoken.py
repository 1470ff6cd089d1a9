"""tiktoken's files of ranks (openai/tiktoken, tiktoken/load.py and src/lib.rs).

Each line has a token in base64 and its rank, which is also its id. Two neighbours merge if their
bytes together are a token. The pair whose token has the lowest rank merges first, the leftmost of
equal pairs. A piece that is itself a token is not merged but becomes that token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from pathlib import Path

import numpy as np

from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.tokenizer_file import read_file
from tokenize_kit.formats.forms import Added, ByteBpe, CannotHold
from tokenize_kit.formats.merges import Pairs, derive_merges, pair_table
from tokenize_kit.pattern.named import PATTERNS, pattern_with

# tiktoken supports a single pattern; BERT's drops white space.
PATTERN_NAMES = tuple(
    n for n, pattern in PATTERNS.items() if len(pattern.parts) == 1 and n != "bert"
)
LARGEST = 1 << 24  # ids; published files have 200,000
# Special tokens of published files, which do not list them: pattern and highest rank to ids
# (tiktoken_ext/openai_public.py; meta-llama/llama-models, llama3 and llama4/tokenizer.py).
_SPECIAL: dict[tuple[str, int], dict[str, int]] = {
    ("gpt2", 50_255): {"<|endoftext|>": 50_256},
    ("gpt2", 50_280): {"<|endoftext|>": 50_256},  # p50k_base
    ("cl100k", 100_255): {
        "<|endoftext|>": 100_257,
        "<|fim_prefix|>": 100_258,
        "<|fim_middle|>": 100_259,
        "<|fim_suffix|>": 100_260,
        "<|endofprompt|>": 100_276,
    },
    ("o200k", 199_997): {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018},
    ("o200k", 199_999): {"<|begin_of_text|>": 200_000, "<|end_of_text|>": 200_001},  # Llama 4
    ("llama3", 127_999): {"<|begin_of_text|>": 128_000, "<|end_of_text|>": 128_001},
}


_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+\r?\n")


def is_ranks(file: Path) -> bool:
    """Return True for a file of ranks: a .tiktoken, or a .model that begins with a line of ranks,
    as Llama 3's and 4's do."""
    if file.suffix != ".model" or not file.is_file():
        return file.suffix == ".tiktoken"
    return _LINE.match(read_file(file)) is not None


def special_of(pattern: str, highest: int) -> dict[str, int]:
    """Return the special tokens of a file whose highest rank is `highest`: those published for the
    pattern, or, if none are published, `<|endoftext|>` with the next id."""
    return _SPECIAL.get((pattern, highest), {"<|endoftext|>": highest + 1})


def read_ranks(raw: bytes) -> dict[bytes, int]:
    """Return the rank of each token. This includes the empty token of Whisper's files, to which no
    text is encoded. Raises ValueError naming the line if the file is invalid."""
    ranks: dict[bytes, int] = {}
    seen: set[int] = set()
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            spelled, position = line.split()
            token, rank = base64.b64decode(spelled, validate=spelled != b"="), int(position)
        except (ValueError, binascii.Error):
            raise ValueError(f"line {number} is not a token in base64 and its rank") from None
        if not 0 <= rank < LARGEST:
            raise ValueError(f"line {number}: a rank outside 0 to {LARGEST - 1:,}")
        if token in ranks or rank in seen:
            raise ValueError(f"line {number}: a repeated token or rank")
        ranks[token] = rank
        seen.add(rank)
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise ValueError("it does not have all 256 bytes")
    return ranks


def listed_special(path: Path) -> dict[str, int] | None:
    """Return the ids of the special tokens in the card that a conversion wrote beside a .tiktoken
    file; None if there is no card of this very file."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for card in (path.with_suffix(".card.json"), path.with_name("tokenizer_card.json")):
        if card.is_file() and (stated := read_json(card)).get("tokenizer_sha256") == digest:
            special = stated.get("special_tokens")
            return special if isinstance(special, dict) else None
    return None


def from_ranks(raw: bytes, pattern: str, special: dict[str, int] | None = None) -> ByteBpe:
    """Return tiktoken's ranks as ByteBpe. pattern: one of PATTERN_NAMES. special: the ids of the
    special tokens; None for those published for the pattern. Raises ValueError."""
    ranks = read_ranks(raw)
    if special is None:
        special = special_of(pattern, max(ranks.values()))
    ranks.pop(b"", None)
    added = tuple(Added(name, number, True) for name, number in special.items())
    cut = pattern_with(pattern, PATTERNS[pattern].digits).parts
    return ByteBpe(ranks, merges_of_ranks(ranks), cut, added, True)


def tables_of(ranks: dict[bytes, int]) -> tuple[np.ndarray, Pairs]:
    """Return (int64[256]: the rank of each byte, the table of the pairs that merge)."""
    rows = [
        number
        for token, rank in ranks.items()
        for cut in range(1, len(token))
        if (right := ranks.get(token[cut:])) is not None
        and (left := ranks.get(token[:cut])) is not None
        for number in (left, right, rank)
    ]
    merges = np.array(rows, np.int64).reshape(-1, 3)
    of_bytes = np.array([ranks[bytes([byte])] for byte in range(256)], np.int64)
    return of_bytes, pair_table(merges, merges[:, 2])


def _last_merges(ranks: dict[bytes, int]) -> dict[bytes, tuple[bytes, bytes]]:
    """Return {token: (left, right)}: the two parts left after its bytes are merged by lower ranks
    only. Tokens with more parts left are not included."""
    tokens = sorted(filter(None, ranks), key=len)  # the 256 bytes first
    data = np.frombuffer(b"".join(tokens), np.uint8)
    ends, numbers = np.cumsum([0, *map(len, tokens)]), [ranks[token] for token in tokens]
    left, right = derive_merges(data, ends, *tables_of(ranks), np.array(numbers))
    names = dict(zip(numbers, tokens, strict=True))
    highest = dict.fromkeys(numbers[:256], -1)  # rank of the merges that make a token
    merges: dict[bytes, tuple[bytes, bytes]] = {}
    for number, a, b in zip(numbers[256:], left[256:].tolist(), right[256:].tolist(), strict=True):
        if b >= 0:
            needed = max(highest[a], highest[b])
            highest[number] = max(needed, number)
            if needed < number:
                merges[names[number]] = names[a], names[b]
    return merges


def merges_of_ranks(ranks: dict[bytes, int]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the merges that give tiktoken's tokens. To find a token's merge, the token's bytes are
    merged by lower ranks only. If two parts are left, the merge joins these parts. If more are
    left, tiktoken gives the token only in some places, for example as a whole piece of text; every
    pair of tokens that spells the token is then a merge."""
    merges, last = [], _last_merges(ranks)
    for token in sorted(ranks, key=ranks.__getitem__):
        merges += [last[token]] if token in last else _pairs(token, ranks)
    return tuple(merges)


def _pairs(token: bytes, ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
    return [(left, right) for left, right in cuts if left in ranks and right in ranks]


def to_ranks(form: ByteBpe) -> bytes:
    """Return the bytes of a file of ranks. Raises CannotHold if ranks cannot express `form`."""
    if len(form.parts) != 1:
        raise CannotHold(f"tiktoken supports one pattern, and this tokenizer has {len(form.parts)}")
    ids = [form.tokens[a + b] for a, b in form.merges]
    if ids != sorted(ids):
        raise CannotHold("ranks cannot express its merges: their order is not the order of ids")
    given, last = set(form.merges), _last_merges(form.tokens)
    made = {a + b for a, b in given}
    for token in form.tokens:
        if form.whole and token not in made:
            other = bool(_pairs(token, form.tokens))
        elif token in last:
            other = last[token] not in given
        else:  # the token occurs only as a whole piece
            other = len(token) > 1 and not form.whole
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
