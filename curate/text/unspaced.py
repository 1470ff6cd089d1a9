"""Words and sentences in scripts without spaces, of whole documents or of any passages in a batch.

Words are cut with a dictionary if the profile of the language (curate.text.languages) names one,
else their number is estimated from grapheme clusters. A Thai or Lao sentence ends at a space
between two letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from curate.text.languages import dictionary_for, shipped
from curate.text.lines import Extents
from curate.text.sentences import sentences
from curate.text.tables import segments
from curate.text.words import IS_CLUSTER, words

if TYPE_CHECKING:
    from curate.documents.documents import Documents
    from curate.text.languages import Profile
    from curate.text.words import Words


def row_sums(rows: np.ndarray, values: np.ndarray, dtype: type = np.int64) -> np.ndarray:
    """Return the sum of the values of each row's tokens, dtype[rows]. values: number[tokens]."""
    before = np.concatenate(([0], np.cumsum(values, dtype=dtype)))
    sums: np.ndarray = np.diff(before[rows])
    return sums


def begin_words(
    cuts: np.ndarray, start: np.ndarray, end: np.ndarray, inside: np.ndarray
) -> np.ndarray:
    """Return bool[tokens]: True for a token that begins a word. `inside` (bool[tokens]) is True for
    grapheme clusters of scripts without spaces. Two clusters in a row are in the same word, except
    where a cut or other bytes are between them. `cuts` (int64[]) are the positions
    at which a dictionary divides the text; `start` and `end` (int64[tokens]) are byte positions."""
    begins = np.ones(len(start), np.bool_)
    is_cut = cuts[np.minimum(np.searchsorted(cuts, start), len(cuts) - 1)] == start
    begins[1:] = ~inside[1:] | ~inside[:-1] | (end[:-1] != start[1:]) | is_cut[1:]
    return begins


def words_within(
    docs: Documents, profile: Profile, start: np.ndarray, end: np.ndarray
) -> np.ndarray:
    """Return float64[extents]: the number of words in each data[start:end]. `profile` is for a
    script without spaces. In other scripts, each run of letters and digits is a word."""
    table = words(docs)
    inside = (table.flags & IS_CLUSTER) > 0
    dictionary = dictionary_for(profile.words, profile.code)
    if dictionary is None:
        weights = np.where(inside, 1.0 / profile.clusters, 1.0)
    else:
        cuts = dictionary.cut(*docs.buffers())
        weights = begin_words(cuts, table.start, table.end, inside).astype(np.float64)
    before = np.concatenate(([0.0], np.cumsum(weights)))
    counts: np.ndarray = before[np.searchsorted(table.start, end)]
    return counts - before[np.searchsorted(table.start, start)]


# Scripts whose words differ in length from those of Han and kana: first and last code point.
SCRIPTS = {
    "tha": (0x0E00, 0x0E7F), "lao": (0x0E80, 0x0EFF), "mya": (0x1000, 0x109F),
    "khm": (0x1780, 0x17FF),
}  # fmt: skip


def words_by_script(data: np.ndarray, table: Words) -> np.ndarray:
    """Return the number of words in each row of a word table, in any language, float64[rows]. For a
    script without spaces, this is the number of grapheme clusters divided by the mean length of a
    word in the profile of the script; for Han and kana, in the profile of Chinese."""
    clusters = np.flatnonzero(table.flags & IS_CLUSTER)
    row = np.searchsorted(table.rows, clusters, side="right") - 1
    number = len(table.rows) - 1
    # Three bytes each, four for some Han; a truncated character is in none of these scripts.
    lead, middle = (data[table.start[clusters] + k].astype(np.int64) for k in (0, 1))
    code = np.where(lead < 0xF0, (lead & 15) << 12 | (middle & 63) << 6, 0)
    counts = np.diff(table.rows) - np.bincount(row, minlength=number).astype(np.float64)
    others = np.ones(len(clusters), np.bool_)
    for language, (first, last) in SCRIPTS.items():
        of_script = (code >= first) & (code <= last)
        others &= ~of_script
        counts += np.bincount(row[of_script], minlength=number) / shipped()[language].clusters
    return counts + np.bincount(row[others], minlength=number) / shipped()["zho"].clusters


def more_words(docs: Documents, profile: Profile, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return int64[passages]: how many more words each passage data[start:end] has than spaces
    show: the words by `profile` minus the pieces between spaces, at least 0."""
    spaced = segments(docs).words.start
    parted = np.searchsorted(spaced, end) - np.searchsorted(spaced, start)
    counts = np.rint(words_within(docs, profile, start, end)).astype(np.int64)
    more: np.ndarray = np.maximum(counts - parted, 0)
    return more


def sentences_of(docs: Documents, unspaced: list[tuple[Profile, np.ndarray]]) -> Extents:
    """Return the sentences of every row. `unspaced` has (profile, rows: int64[]) per script without
    spaces. In a language without end marks, a sentence ends at a space between two letters."""
    table = sentences(docs)
    unmarked = np.zeros(len(docs), np.bool_)
    for profile, rows in unspaced:
        unmarked[rows] = not profile.end_marks
    if not unmarked.any():
        return table
    _, offsets = docs.buffers()
    letters, spaced = words(docs), segments(docs).words
    clusters = (letters.flags & IS_CLUSTER) > 0
    ends, begins = spaced.end[:-1], spaced.start[1:]
    blank = np.isin(ends, letters.end[clusters]) & np.isin(begins, letters.start[clusters])
    blank &= unmarked[np.searchsorted(offsets, begins, side="right") - 1]
    blank[np.setdiff1d(spaced.lines, [0, len(spaced.end)]) - 1] = False  # not between lines
    start = np.sort(np.concatenate([table.start, begins[blank]]))
    end = np.sort(np.concatenate([table.end, ends[blank]]))
    return Extents(np.searchsorted(start, offsets), start, end)
