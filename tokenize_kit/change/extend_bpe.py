"""More merges behind those that a byte-level BPE has.

Texts are encoded by the old merges; pairs of what comes out are counted and merged as in training.
Every new merge comes behind all old ones, so a text is encoded as before and then merged further.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

import numpy as np

from tokenize_kit.change.forms import ByteBpe
from tokenize_kit.change.verify import Buffers, packed
from tokenize_kit.encode.reading import Plan
from tokenize_kit.encode.words import encode_pieces, new_cache
from tokenize_kit.learn.bpe import LEAST, LONGEST
from tokenize_kit.learn.bpe_merges import learn
from tokenize_kit.learn.bpe_text import lay_out
from tokenize_kit.learn.word_counts import WordCounts

# Two merges may spell the same token, as a learned one and one of before: so many more are learned.
_MORE = 16
Merges = list[tuple[bytes, bytes]]
Text = TypeVar("Text", bytes, str)


def pieces_of(plan: Plan, letters: np.ndarray, ends: np.ndarray) -> Buffers:
    """(ids: uint32[], how many of each: int64[]) of pieces that patterns have cut.

    letters: uint8[]; ends: int64[pieces + 1].
    """
    letters = letters.view()
    letters.flags.writeable = False  # as everywhere: the kernel is compiled for it
    ones = np.ones(len(ends) - 1, np.int64)
    return encode_pieces(letters, ends, ends[1:].copy(), ones, plan.bpe, new_cache())


def learn_more(
    form: ByteBpe, plan: Plan, batches: Iterable[Buffers], tokens: int, least: int = LEAST
) -> tuple[list[bytes], Merges]:
    """(new tokens, new merges), in order; the first token's id is form.size.

    batches: texts; tokens: how many at most; least: occurrences of a pair that is merged. The same
    texts in any order give the same. No token is spelled as an added token is.
    """
    counted = WordCounts(plan.tables)
    for data, offsets in batches:
        counted.add(data, offsets)
    letters, ends, counts = counted.words()
    ids, sizes = pieces_of(plan, letters, ends)
    banned, lengths = _encoded(plan, [token.content for token in form.added])
    text = lay_out(ids.astype(np.int32), np.append(0, np.cumsum(sizes)), counts)
    found = learn(
        text, form.size, form.size + tokens + tokens // 8 + _MORE, least, LONGEST,
        banned.astype(np.int32), np.cumsum(np.append(0, lengths)),
    )  # fmt: skip
    never = {token.content.encode() for token in form.added}
    return named(form.tokens, set(form.merges), never, found, tokens)


def _encoded(plan: Plan, texts: list[str]) -> Buffers:
    data, offsets = packed(texts)
    return pieces_of(plan, data, offsets)


def named(
    old: Mapping[Text, int],
    taken: set[tuple[Text, Text]],
    never: Collection[Text],
    found: np.ndarray,
    tokens: int,
) -> tuple[list[Text], list[tuple[Text, Text]]]:
    """Learned merges as they are spelled, each once, until there are enough tokens.

    old: tokens to ids; taken: their merges; never: what no token is spelled as; found: as
    bpe_merges.learn returns it.
    """
    spelled = {number: token for token, number in old.items()}
    known = set(old)
    new: list[Text] = []
    merges: list[tuple[Text, Text]] = []
    for left, right, made in found.tolist():
        if left not in spelled or right not in spelled:
            continue  # made of one that may not be
        pair = spelled[left], spelled[right]
        token = pair[0] + pair[1]
        if token in never:
            continue
        if token not in known:
            if len(new) == tokens:
                break
            known.add(token)
            new.append(token)
        spelled[made] = token
        if pair not in taken:
            taken.add(pair)
            merges.append(pair)
    return new, merges
