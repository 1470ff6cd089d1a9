"""The merges that are derived from tiktoken's ranks."""

import base64
import random
from itertools import pairwise

import pytest

from tokenize_kit.change.convert import convert
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.tiktoken import is_ranks, merges_of_ranks


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


def test_ranks_in_a_file_called_model_are_read_as_those_of_llama_3_are(tmp_path):
    tokens = [*(bytes([byte]) for byte in range(256)), b"th", b"the"]
    lines = (f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens))
    file = tmp_path / "tokenizer.model"
    file.write_text("\n".join(lines) + "\n")
    assert is_ranks(file)
    assert open_vocabulary(file, "llama3").encoder.tokenizer.encode("the").ids == [257]
    convert(file, tmp_path / "out", "tokenizer.json", pattern="llama3")
    assert open_vocabulary(tmp_path / "out/tokenizer.json").encoder.tokenizer.encode("the").ids == [
        257
    ]
