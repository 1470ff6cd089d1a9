"""Words of other languages than English: stop words of a profile, and words without spaces.

Words without spaces are cut by a dictionary, where the step has one for the language. Else they are
counted by grapheme clusters: so many clusters are a word as the profile says, and a run of n words
is a run of n times as many clusters, wherever it begins. So a repeated passage is found whatever
stands before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from curate.filters.tokens import (
    ALPHA,
    FIRST_ALNUM,
    PLAIN,
    PUNCTUATION,
    Tokens,
    describe,
    joined_tokens,
)
from curate.text.languages import dictionary_for
from curate.text.unspaced import begin_words, row_sums
from curate.text.words import IS_CLUSTER, character_tables, words

if TYPE_CHECKING:
    from curate.documents.documents import Documents
    from curate.text.languages import Profile


def stop_words(docs: Documents, tokens: Tokens, profile: Profile, fold: bool) -> np.ndarray:
    """int64[rows, 2]: occurrences of the profile's stop words, and how many different ones there
    are. fold: in any case, of a word's usual spellings. Where words have no spaces they count
    wherever their letters stand, and only once each."""
    if profile.clusters:
        texts = docs.text.to_pylist()
        held = [sum(word in (text or "") for word in profile.stop_words) for text in texts]
        return np.repeat(np.array(held, np.int64)[:, None], 2, axis=1)
    spelled: dict[str, int] = {}
    for number, word in enumerate(profile.stop_words):
        for form in (word, word.capitalize(), word.upper()) if fold else (word,):
            spelled.setdefault(form, number)
    raw = [form.encode() for form in spelled]
    data = np.frombuffer(bytearray(b"".join(raw) + bytes(8)), np.uint8)
    ends = np.cumsum([len(x) for x in raw])
    starts = ends - [len(x) for x in raw]
    kinds = character_tables()[0]
    hashes, _ = describe(data, starts, ends, kinds, PUNCTUATION, False, True)
    order = np.argsort(hashes)
    at = np.searchsorted(hashes[order], tokens.hash)
    at = order[np.minimum(at, len(order) - 1)] if len(order) else np.zeros(len(at), np.int64)
    is_stop = hashes[at] == tokens.hash if len(order) else np.zeros(len(at), np.bool_)
    which = np.array([*spelled.values(), 0], np.int64)[at]
    out = np.zeros((len(tokens.rows) - 1, 2), np.int64)
    out[:, 0] = row_sums(tokens.rows, is_stop)
    for k in range(len(profile.stop_words)):
        out[:, 1] += row_sums(tokens.rows, is_stop & (which == k)) > 0
    return out


def unspaced_tokens(docs: Documents, profile: Profile) -> tuple[Tokens, np.ndarray, float]:
    """(tokens, bool[tokens]: those of a script without spaces, how many of them are a word)."""
    letters, table = joined_tokens(docs), words(docs)
    clusters = np.flatnonzero((table.flags & IS_CLUSTER) > 0)
    starts = table.start[clusters]
    at = np.minimum(np.searchsorted(starts, letters.start), max(len(starts) - 1, 0))
    inside = starts[at] == letters.start if len(starts) else np.zeros(len(at), np.bool_)
    dictionary = dictionary_for(profile.words, profile.code)
    if dictionary is None:
        return letters, inside, profile.clusters
    data, offsets = docs.buffers()
    end = np.where(inside, table.end[clusters][at] if len(starts) else 0, -1)
    begins = begin_words(dictionary.cut(data, offsets), letters.start, end, inside)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(begins)) - 1
    hashes, flags = letters.hash[first], letters.flags[first]
    long = np.flatnonzero(last > first)
    if len(long):
        kinds = character_tables()[0]
        extent = letters.start[first[long]], end[last[long]]
        hashes[long], _ = describe(data, *extent, kinds, PUNCTUATION, False, True)
    rows = np.concatenate(([0], np.cumsum(begins)))[letters.rows]
    chars = np.add.reduceat(letters.chars, first) if len(first) else letters.chars
    tokens = Tokens(rows, letters.start[first], chars.astype(np.int32), hashes, flags)
    return tokens, inside[first], 1.0


def estimated(docs: Documents, base: Tokens, profile: Profile) -> tuple[np.ndarray, ...]:
    """(all, plain, firsts, alphas: float64[rows]) of a script without spaces: words; those with a
    character that is no punctuation; those that begin with a letter or digit; those with a letter.

    base: the tokens of a reading, in which a run of letters without spaces is one: what of them
    holds no letter counts as it is.
    """
    tokens, inside, per_word = unspaced_tokens(docs, profile)
    spaced = row_sums(tokens.rows, ((tokens.flags & ALPHA) > 0) & ~inside)
    alphas = spaced + row_sums(tokens.rows, inside) / per_word
    others = (base.flags & ALPHA) == 0
    return (
        alphas + row_sums(base.rows, others),
        alphas + row_sums(base.rows, others & ((base.flags & PLAIN) > 0)),
        alphas + row_sums(base.rows, others & ((base.flags & FIRST_ALNUM) > 0)),
        alphas,
    )


def word_number(docs: Documents, base: Tokens, profile: Profile | None) -> np.ndarray:
    """number[rows]: the words of each row, symbols among them where the reading has them."""
    if profile is None or not profile.clusters:
        return np.diff(base.rows)
    return estimated(docs, base, profile)[0]
