"""Where the sentences of a batch begin and end, by the rules that sentences.py counts them by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from curate.text.pieces import Pieces
from curate.text.sentences import cjk_stop_bytes, ends_sentence, may_end
from curate.text.tables import segments
from kernel_cache import njit

if TYPE_CHECKING:
    from curate.documents import Documents


@njit(cache=True, nogil=True)
def _sentences(data, row_lines, line_words, word_start, word_end, word_chars):
    """(rows: int64[rows + 1], start, end: int64[sentences])."""
    n_rows = len(row_lines) - 1
    limit = len(word_start)
    for w in range(len(word_start)):
        if word_chars[w] != word_end[w] - word_start[w]:
            limit += (word_end[w] - word_start[w]) // 3
    rows = np.empty(n_rows + 1, np.int64)
    start = np.empty(limit, np.int64)
    end = np.empty(limit, np.int64)
    n = 0
    for r in range(n_rows):
        rows[r] = n
        for k in range(row_lines[r], row_lines[r + 1]):
            stop = line_words[k + 1]
            begun = np.int64(-1)  # where the sentence began that has not ended yet
            for w in range(line_words[k], stop):
                a, z = word_start[w], word_end[w]
                if begun < 0:
                    begun = a
                if word_chars[w] != z - a:
                    i = a
                    while i < z:
                        size = cjk_stop_bytes(data, i, z)
                        if size == 0:
                            i += 1
                            continue
                        i += size
                        start[n], end[n] = begun, i
                        n += 1
                        begun = i
                        a = i
                    if a == z:
                        begun = np.int64(-1)
                        continue
                if (
                    w + 1 < stop
                    and may_end(data[z - 1])
                    and ends_sentence(data, a, z, word_start[w + 1], word_end[w + 1])
                ):
                    start[n], end[n] = begun, z
                    n += 1
                    begun = np.int64(-1)
            if begun >= 0:
                start[n], end[n] = begun, word_end[stop - 1]
                n += 1
    rows[n_rows] = n
    return rows, start[:n].copy(), end[:n].copy()


def sentences(docs: Documents) -> Pieces:
    """The sentences of every row, without white space at their ends; computed once while the text
    is unchanged."""

    def build() -> Pieces:
        tables = segments(docs)
        lines, words = tables.lines, tables.words
        data, _ = docs.buffers()
        return Pieces(
            *_sentences(data, lines.rows, words.lines, words.start, words.end, words.chars)
        )

    return docs.table_of("sentences", build)
