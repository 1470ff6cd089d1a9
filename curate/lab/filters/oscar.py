"""The rules for short lines and the annotations of OSCAR (Abadji et al. 2022, sections 3.1 and
3.3).

Source: these files of oscar-project/ungoliant, in order of use: src/pipelines/oscardoc/pipeline.rs,
src/filtering/record.rs and src/transformers (sentence_filter.rs, tiny.rs, header.rs, noisy.rs).
Lines end at newlines.
"""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.steps.contracts import Step, step

Warning_ = Literal["tiny", "short_sentences", "header", "footer", "noisy"]
TINY_LINES = 5  # tiny.rs: a page with fewer lines is tiny
SHORT_SHARE = 0.5  # ShortSentences: a larger share of the lines must be short
# header.rs: the share of lines at an edge, the share of them that must be short, a long one's bytes
EDGE, EDGE_SHARE, EDGE_BYTES = 0.2, 0.5, 100
NOISE = 0.5  # noisy.rs: a larger share of the characters must be neither letters nor marks
RULES = ("short_ends",)


def warnings(sizes: np.ndarray, chars: np.ndarray, long: int, letters: int, all_: int) -> list[str]:
    """Return the names of OSCAR's annotations that apply to a document. `sizes` and `chars` are
    int64[lines], the bytes and characters in each line. A short line has at most `long` characters.
    Of the document's `all_` characters, `letters` are letters or marks."""
    lines = len(sizes)
    edge = int(lines * EDGE)
    most = int(edge * EDGE_SHARE)
    tests = {
        "tiny": lines < TINY_LINES,
        "short_sentences": np.count_nonzero(chars <= long) > int(SHORT_SHARE * lines),
        "header": np.count_nonzero(sizes[:edge] < EDGE_BYTES) > most,
        "footer": np.count_nonzero(sizes[lines - edge :] < EDGE_BYTES) > most,
        "noisy": all_ - letters > int(all_ * NOISE),
    }
    return [name for name, holds in tests.items() if holds]


@step("oscar")
class Oscar(Step):
    """Removes short lines at both ends of pages, drops pages of short lines, annotates the others.

    Columns: `long_share`, the share of characters in long lines; `warnings`, OSCAR's annotations.
    """

    paper: ClassVar[str] = "Abadji et al. 2022, section 3; oscar-project/ungoliant"

    long_chars: int = Field(100, ge=1)
    """A line with more characters is long (ungoliant, filtering/sentence.rs)."""
    min_long_share: float = Field(0.6, ge=0, le=1)
    """Pages with a smaller share of their characters in long lines are dropped (ungoliant,
    filtering/record.rs)."""
    drop: tuple[str, ...] = ("noisy+tiny",)
    """Documents with one of these annotations are dropped: tiny, short_sentences, header, footer or
    noisy. Annotations joined by a plus must all be present (ungoliant: noisy and tiny)."""

    @field_validator("drop")
    @classmethod
    def _check_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = get_args(Warning_)
        for name in (part for text in value for part in text.split("+")):
            if name not in names:
                raise ValueError(f"{name!r} is not an annotation: give {', '.join(names)}")
        return value

    def apply(self, docs: Documents) -> Documents:
        from curate.documents.cutting import cut
        from curate.text.lines import newline_lines
        from curate.text.unicode import row_chars

        data, offsets = docs.buffers()
        lines = newline_lines(docs)
        tiles = np.append(lines.start, offsets[-1])
        chars = row_chars(data, tiles) - (tiles[1:] > lines.end)  # without the newline
        rows = len(docs)
        ends: list[tuple[int, int]] = []  # per row: first line that stays, last + 1
        share = np.zeros(rows)
        for row in range(rows):
            first, last = lines.rows[row], lines.rows[row + 1]
            long = np.flatnonzero(chars[first:last] > self.long_chars)
            a, z = (first + long[0], first + long[-1] + 1) if len(long) else (first, first)
            ends.append((int(a), int(z)))
            upper = chars[a:z][chars[a:z] >= self.long_chars].sum()
            share[row] = upper / max(int(chars[a:z].sum()), 1)
        none = np.array([a == z for a, z in ends], np.bool_)
        docs = docs.annotate("long_share", share)
        docs = docs.drop(none, "no_long_line")
        short = ~none & (share < self.min_long_share)
        docs = docs.drop(short, "short_lines", share, self.min_long_share)
        clean = ~docs.marked()
        spans: list[tuple[int, int, int]] = []
        for row, (a, z) in enumerate(ends):
            if clean[row]:
                low, high = int(offsets[row]), int(offsets[row + 1])
                for first, last in ((low, int(lines.start[a])), (int(lines.end[z - 1]), high)):
                    if last > first:
                        spans.append((row, first - low, last - low))
        at, begin, stop = (np.array([s[k] for s in spans], np.int64) for k in range(3))
        zeros = np.zeros(len(spans), np.int64)
        docs = cut(docs, Spans(at, begin, stop, zeros, RULES, zeros))
        return self._annotated(docs, lines.end - lines.start, chars, ends)

    def _annotated(
        self, docs: Documents, sizes: np.ndarray, chars: np.ndarray, ends: list[tuple[int, int]]
    ) -> Documents:
        letters = pc.fill_null(pc.count_substring_regex(docs.text, pattern=r"[\p{L}\p{M}]"), 0)
        all_ = pc.fill_null(pc.utf8_length(docs.text), 0)
        pairs = zip(letters.to_pylist(), all_.to_pylist(), strict=True)
        row_warnings = [
            warnings(sizes[a:z], chars[a:z], self.long_chars, *counts) if z > a else []
            for (a, z), counts in zip(ends, pairs, strict=True)
        ]
        docs = docs.annotate("warnings", pa.array(row_warnings, pa.list_(pa.string())))
        for text in self.drop:
            mask = np.array([set(text.split("+")) <= set(f) for f in row_warnings], np.bool_)
            docs = docs.drop(mask, text.replace("+", "_"))
        return docs
