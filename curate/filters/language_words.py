"""Words in languages other than English: stop words, and words in scripts without spaces.

Text without spaces is cut into words by a dictionary if the step has one for the language. If not,
an n-gram of words is any sequence of n * c grapheme clusters, with the c of the language profile.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def stop_words(
    docs: Documents, tokens: Tokens, listed: Sequence[str], unspaced: bool, fold: bool
) -> np.ndarray:
    """Count the `listed` stop words. Return int64[rows, 2]: all occurrences, and distinct words. If
    `fold`, capitalized and upper-case spellings count too. If `unspaced`, the script has no spaces:
    words are found anywhere in the text, and both columns count distinct words."""
    if unspaced:
        texts = docs.text.to_pylist()
        matched = [sum(word in (text or "") for word in listed) for text in texts]
        return np.repeat(np.array(matched, np.int64)[:, None], 2, axis=1)
    spelled: dict[str, int] = {}
    for number, word in enumerate(listed):
        for form in (word, word.capitalize(), word.upper()) if fold else (word,):
            spelled.setdefault(form, number)
    out = np.zeros((len(tokens.rows) - 1, 2), np.int64)
    if not spelled:
        return out
    raw = [form.encode() for form in spelled]
    data = np.frombuffer(bytearray(b"".join(raw) + bytes(8)), np.uint8)
    ends = np.cumsum([len(x) for x in raw])
    starts = ends - [len(x) for x in raw]
    kinds = character_tables()[0]
    hashes, _ = describe(data, starts, ends, kinds, PUNCTUATION, False, True)
    order = np.argsort(hashes)
    at = order[np.minimum(np.searchsorted(hashes[order], tokens.hash), len(order) - 1)]
    is_stop = hashes[at] == tokens.hash
    out[:, 0] = row_sums(tokens.rows, is_stop)
    rows = np.repeat(np.arange(len(out)), np.diff(tokens.rows))[is_stop]
    words = np.array([*spelled.values()], np.int64)[at[is_stop]]
    distinct = np.unique(rows * len(listed) + words)
    out[:, 1] = np.bincount(distinct // len(listed), minlength=len(out))
    return out


def unspaced_tokens(docs: Documents, profile: Profile) -> tuple[Tokens, np.ndarray, float]:
    """Return (tokens, inside, per_word) of a batch. `inside` (bool[tokens]) is True for a token in
    a script without spaces: a word if there is a dictionary, else a grapheme cluster. `per_word` is
    the mean number of such tokens per word. All other tokens are words."""
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


def estimated_counts(docs: Documents, base: Tokens, profile: Profile) -> tuple[np.ndarray, ...]:
    """Estimate word counts of texts in scripts without spaces. Return four float64[rows]: all
    words; words with a non-punctuation character; words that begin with a letter or digit; words
    with a letter. Words without a letter are counted in `base`, the caller's tokens."""
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
    """Return each row's number of words: tokens in `base`, or estimates for unspaced scripts."""
    if profile is None or not profile.clusters:
        return np.diff(base.rows)
    return estimated_counts(docs, base, profile)[0]
