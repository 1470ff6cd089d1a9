"""Words and sentences of scripts without spaces in any part of a batch.

Words are cut by a dictionary where the profile has one, else estimated by grapheme clusters (see
`curate.text.languages`). A Thai or Lao sentence ends at a blank between two letters.
"""

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
    """dtype[rows]: sums of values: number[tokens] over the tokens of each row."""
    before = np.concatenate(([0], np.cumsum(values, dtype=dtype)))
    sums: np.ndarray = np.diff(before[rows])
    return sums


def begin_words(
    cuts: np.ndarray, start: np.ndarray, end: np.ndarray, inside: np.ndarray
) -> np.ndarray:
    """bool[tokens]: which tokens begin a word. cuts: int64[], where a dictionary cuts; start, end:
    int64[tokens], bytes; inside: bool[tokens], the clusters of a script without spaces; one
    goes on with the word before it, unless a cut or a gap is between them."""
    begins = np.ones(len(start), np.bool_)
    is_cut = cuts[np.minimum(np.searchsorted(cuts, start), len(cuts) - 1)] == start
    begins[1:] = ~inside[1:] | ~inside[:-1] | (end[:-1] != start[1:]) | is_cut[1:]
    return begins


def words_within(
    docs: Documents, profile: Profile, start: np.ndarray, end: np.ndarray
) -> np.ndarray:
    """float64[extents]: the words in each data[start:end]. profile: of a script without spaces;
    what stands between its letters counts as runs of other letters and digits."""
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


# Scripts whose words are others in length than those of Han and kana: first and last code point.
SCRIPTS = {
    "tha": (0x0E00, 0x0E7F), "lao": (0x0E80, 0x0EFF), "mya": (0x1000, 0x109F),
    "khm": (0x1780, 0x17FF),
}  # fmt: skip


def words_by_script(data: np.ndarray, table: Words) -> np.ndarray:
    """float64[rows]: the words of each row of a word table, in whatever language: clusters by the
    mean length of a word in the profile of their script, Han and kana by that of Chinese."""
    clusters = np.flatnonzero(table.flags & IS_CLUSTER)
    row = np.searchsorted(table.rows, clusters, side="right") - 1
    number = len(table.rows) - 1
    # Three bytes each, or four of Han; what is cut short is no letter of these scripts.
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
    """int64[extents]: the words in each data[start:end] beside those that white space parts."""
    spaced = segments(docs).words.start
    parted = np.searchsorted(spaced, end) - np.searchsorted(spaced, start)
    counts = np.rint(words_within(docs, profile, start, end)).astype(np.int64)
    more: np.ndarray = np.maximum(counts - parted, 0)
    return more


def sentences_of(docs: Documents, unspaced: list[tuple[Profile, np.ndarray]]) -> Extents:
    """The sentences of every row. unspaced: (profile, rows: int64[]) of scripts without spaces; a
    language without end marks has a sentence's end at a blank between two of its letters."""
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
    blank[np.setdiff1d(spaced.lines, [0, len(spaced.end)]) - 1] = False  # between two lines
    start = np.sort(np.concatenate([table.start, begins[blank]]))
    end = np.sort(np.concatenate([table.end, ends[blank]]))
    return Extents(np.searchsorted(start, offsets), start, end)
