"""The merges that are derived from tiktoken's ranks."""

import random
from itertools import pairwise

import pytest

from tokenize_kit.formats.tiktoken import merges_of_ranks


def merged(ranks: dict[bytes, int], token: bytes) -> list[bytes]:
    """Merge the bytes of a token by the ranks below its own, as tiktoken merges a piece of text."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 1:
        found = [ranks.get(a + b, ranks[token]) for a, b in pairwise(parts)]
        at = found.index(min(found))
        if found[at] >= ranks[token]:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


@pytest.mark.parametrize("letters", [b"a", b"ab", b"abc"])
def test_the_merge_of_a_token_joins_what_lower_ranks_leave_of_it(letters):
    draw, several = random.Random(1), 0
    for _ in range(200):
        longer = {bytes(draw.choices(letters, k=draw.randint(2, 7))) for _ in range(40)}
        tokens = [*sorted(longer), *(bytes([byte]) for byte in range(256))]
        ranks = dict(zip(draw.sample(tokens, len(tokens)), range(len(tokens)), strict=True))
        expected = []
        for token in sorted(longer, key=ranks.__getitem__):
            parts = merged(ranks, token)
            cuts = [(token[:k], token[k:]) for k in range(1, len(token))]
            every = [(a, b) for a, b in cuts if a in ranks and b in ranks]
            expected += [tuple(parts)] if len(parts) == 2 else every
            several += len(parts) > 2
        assert list(merges_of_ranks(ranks)) == expected
        assert merges_of_ranks(ranks | {b"": len(ranks)}) == merges_of_ranks(ranks)
    assert several
