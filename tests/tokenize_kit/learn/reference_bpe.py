"""BPE in plain Python that recounts all pairs for each merge."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from tokenizers import Regex, pre_tokenizers

from tokenize_kit.formats.tokenizer_json import ORDER


def cut(texts, parts):
    """Pieces of the texts with their counts, by `tokenizers`."""
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    split = pre_tokenizers.Sequence(splits)
    return Counter(piece for text in texts for piece, _ in split.pre_tokenize_str(text))


def merged(piece, pair, token):
    result = []
    for symbol in piece:
        if result and (result[-1], symbol) == pair:
            result[-1] = token
        else:
            result.append(symbol)
    return tuple(result)


def go_on(pieces, names, merges, size, refused=lambda spelled, names: False):
    """Merge the most frequent pair of pieces (symbols: count) until there are `size` tokens. By
    default no merge is refused; one that spells an existing token gives that token."""
    while len(names) < size:
        pairs = Counter()
        for piece, count in pieces.items():
            for pair in pairwise(piece):
                pairs[pair] += count
        allowed = {
            pair: count
            for pair, count in pairs.items()
            if count >= 2 and not refused(names[pair[0]] + names[pair[1]], names)
        }
        if not allowed:
            return
        pair = min(allowed, key=lambda pair: (-allowed[pair], pair))
        spelled = names[pair[0]] + names[pair[1]]
        if spelled not in names:
            names.append(spelled)
        merges.append(pair)
        pieces = renewed(pieces, pair, names.index(spelled))


def renewed(pieces, pair, token):
    changed = Counter()
    for piece, count in pieces.items():
        changed[merged(piece, pair, token)] += count
    return changed


def symbols(pieces):
    numbers = {byte: number for number, byte in enumerate(ORDER)}
    return Counter({tuple(numbers[b] for b in p.encode()): n for p, n in pieces.items()})
