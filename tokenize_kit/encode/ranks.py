"""tiktoken's files of ranks as the tables of our kernels.

A line is a token in base64 and its rank, which is its id. Two neighbours merge where their bytes
together are a token, the lowest rank first, the leftmost of equals; a piece that is a token is that
token (openai/tiktoken, tiktoken/load.py and src/lib.rs).
"""

from __future__ import annotations

import base64
import binascii

import numpy as np

from tokenize_kit.encode.greedy import make_greedy, no_greedy
from tokenize_kit.encode.merges import pair_table
from tokenize_kit.encode.reading import Plan
from tokenize_kit.encode.trie import build_trie
from tokenize_kit.encode.words import Bpe
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.named import PATTERNS

# tiktoken takes one pattern, not one after the other; BERT's leaves white space out.
NAMES = tuple(n for n, pattern in PATTERNS.items() if len(pattern.parts) == 1 and n != "bert")
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
            spelled, place = line.split()
            token, rank = base64.b64decode(spelled, validate=True), int(place)
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


def plan_of(ranks: dict[bytes, int], pattern: str) -> Plan:
    """Tables that give tiktoken's ids. ranks: with all bytes; pattern: one of NAMES. Raises
    ValueError for tokens that no table of ours holds."""
    rows = [
        (ranks[left], ranks[right], rank)
        for token, rank in ranks.items()
        for cut in range(1, len(token))
        if (left := token[:cut]) in ranks and (right := token[cut:]) in ranks
    ]
    merges = np.array(rows, np.int64).reshape(-1, 3)
    pairs = pair_table(merges, merges[:, 2])
    byte_ids = np.array([ranks[bytes([byte])] for byte in range(256)], np.int64)
    tokens = {rank: token for token, rank in ranks.items()}
    greedy = make_greedy(tokens, byte_ids, pairs)
    slots, found = build_trie(list(ranks), np.array(list(ranks.values()), np.int64))
    bpe = Bpe(byte_ids, pairs, greedy or no_greedy(), greedy is not None, slots, found, True)
    return Plan((compile_pattern(PATTERNS[pattern].parts[0], "rust"),), bpe, ())
