"""Measure shares, lengths and counts of a text; drop documents with a measure outside its limits.

Each measure is counted as one published tool counts it (docs/filters.md): Data-Juicer (ops/filter),
NeMo Curator (filters/heuristic_filter.py) or DataTrove (pipeline/stats/doc_stats.py).
"""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import numpy as np
import pyarrow.compute as pc
from pydantic import Field, model_validator

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.steps.contracts import Step, step
from curate.steps.profiled import CountsWords

Measure = Literal[
    "digits", "upper_case", "letters", "alphanumerics", "non_alphanumerics", "punctuation",
    "brackets", "white_space", "special_characters", "urls", "char_repetition", "word_repetition",
    "characters", "words", "stripped_words", "lines", "words_per_line", "line_length",
    "longest_line", "word_length", "longest_word",
]  # fmt: skip
# NeMo Curator, utils/constants.py, regex_url: addresses of ASCII characters.
URL = r"https?://[!$-_a-z]+"


@step("ratios")
class Ratios(CountsWords, Step):
    """Drops documents by shares of digits, URLs and other characters, by repetition and lengths.

    There is an output column for each measure, even if the measure has no limit.
    """

    paper: ClassVar[str] = "Data-Juicer, ops/filter; NeMo Curator, heuristic_filter.py"
    only_measures: ClassVar[bool] = True

    min: dict[Measure, float] = {}
    """The least value of any measure, such as {letters: 0.5, words: 50}. Documents with a smaller
    value are dropped."""
    max: dict[Measure, float] = {}
    """The largest value of any measure, such as {digits: 0.15, urls: 0.2}. Documents with a larger
    value are dropped."""
    char_ngram: int = Field(10, ge=1, le=1000)
    """Characters per n-gram of the measure char_repetition (Data-Juicer,
    character_repetition_filter)."""
    word_ngram: int = Field(10, ge=1, le=1000)
    """Words per n-gram of the measure word_repetition (Data-Juicer, word_repetition_filter)."""

    @model_validator(mode="after")
    def _ordered(self) -> Ratios:
        for name in self.min.keys() & self.max.keys():
            low, high = self.min[name], self.max[name]
            if low > high:
                raise ValueError(
                    f"min.{name} {low:g} is above max.{name} {high:g}: nothing would be kept"
                )
        return self

    def notes(self) -> list[str]:
        limited = self.min or self.max
        return [] if limited else [f"{self.label}: no limit was given, so nothing is dropped"]

    def apply(self, docs: Documents) -> Documents:
        measured = self._measured(docs)
        for name in get_args(Measure):
            docs = docs.annotate(name, measured[name])
        return decide(docs, self.limits())

    def own_limits(self) -> list[Limit]:
        return [
            Limit(rule, name, f"{setting}.{name}", getattr(self, setting).get(name), above)
            for name in get_args(Measure)
            for rule, setting, above in (
                (f"low_{name}", "min", False),
                (f"high_{name}", "max", True),
            )
        ]

    def _measured(self, docs: Documents) -> dict[str, np.ndarray]:
        """Return {measure: number[rows]} of a batch. All shares of an empty text are 0."""
        from curate.filters import ratios_kernel as kernel
        from curate.filters.repeats import ratio
        from curate.text.tables import segments
        from curate.text.unspaced import words_within
        from curate.text.words import character_tables

        data, offsets = docs.buffers()
        table = segments(docs)
        firsts, codes = kernel.code_points(data, offsets)
        classes, counted = kernel.character_classes()
        counts, longest_line = kernel.class_counts(firsts, codes, classes, counted["line_ends"])
        space, special = counted["white_space"], counted["special_characters"]
        stripped, hashes, longest_word = kernel.stripped_words(
            firsts, codes, classes, space, special, character_tables()[1]
        )
        words = np.diff(table.words.lines[table.lines.rows])
        for profile, rows in self.unspaced(docs):
            exact = words_within(docs, profile, offsets[rows], offsets[rows + 1])
            words[rows] = np.rint(exact).astype(words.dtype)
        chars, lines = table.chars, np.diff(table.lines.rows)
        shares = {name: ratio(counts @ chosen, chars) for name, chosen in counted.items()}
        without = pc.utf8_length(pc.replace_substring_regex(docs.text, URL, ""))
        urls = chars - pc.fill_null(without, 0).to_numpy(zero_copy_only=False)
        return shares | {
            "urls": ratio(urls, chars),
            "char_repetition": kernel.repeated_shares(firsts, codes, self.char_ngram, True),
            "word_repetition": kernel.repeated_shares(stripped, hashes, self.word_ngram, False),
            "characters": chars,
            "words": words,
            "stripped_words": np.diff(stripped),
            "lines": lines,
            "words_per_line": ratio(words, lines),
            "line_length": ratio(chars, lines),
            "longest_line": longest_line,
            "word_length": ratio(chars - counts @ space, words),
            "longest_word": longest_word,
        }
