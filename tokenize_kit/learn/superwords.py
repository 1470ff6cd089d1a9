"""SuperBPE: tokens that span words, learned behind those that do not (Liu et al. 2025).

The first merges are those of the pieces that the pattern cuts. From a given size of the vocabulary
on, pieces are whole lines: the merges so far are applied to them, as the tokenizer will, and
learning goes on with what that leaves. A token holds four words at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.learn.bpe_merges import Begun, learn
from tokenize_kit.learn.byte_words import (
    build_tokenizer,
    byte_ids,
    count_cuttings,
    lay_out_words,
    learn_merges,
    spelled,
)
from tokenize_kit.learn.words import lay_out

WORDS = 4  # of a token at most: Liu et al. 2025
_WHITE_SPACE = b" \t\n\r\v\f"


def learn_superwords(
    documents: Iterable[tuple[str, int]],
    words: Sequence[str],
    lines: Sequence[str],
    subwords: int,
    tokens: int,
    banned: Sequence[bytes],
    least: int,
    longest: int,
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """(tokens, merges) as bpe.learn_merges gives them.

    documents: texts with their weights; words, lines: patterns that cut texts at first, and from
    `subwords` tokens on; the rest as there.
    """
    of_words, of_lines = count_cuttings(documents, [words, lines])
    text = lay_out_words(*of_words.words())
    del of_words
    names, merges = learn_merges(text, subwords, banned, least, longest)
    del text
    letters, ends, counts = of_lines.words()
    del of_lines
    ids, sizes = Encoder(build_tokenizer(names, merges, (), (), lines)).encode(letters, ends)
    del letters
    text = lay_out(ids.astype(np.int32), np.append(0, np.cumsum(sizes)), counts)
    learned = learn(text, len(names), tokens, least, longest, *spelled(banned), begun=_begun(names))
    for left, right in learned[:, :2].tolist():
        merges.append((left, right))
        names.append(names[left] + names[right])
    return names, merges


def _begun(names: Sequence[bytes]) -> Begun:
    """The tokens that there are, as learning goes on with them over words."""
    gaps = np.zeros(256, np.bool_)
    gaps[byte_ids()[list(_WHITE_SPACE)]] = True
    return Begun(*spelled(names), gaps, WORDS)
