"""What of a text becomes shingles: its normal forms, and the sets of shingles themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.text.buffers import as_large_string, text_buffers

# DataTrove's simplify_text (utils/text.py), step by step: lower case, numbers to 0, punctuation to
# a blank, runs of white space to one, then NFD without its nonspacing marks. RE2's classes stand
# in for its list of punctuation.
_DATATROVE = (
    (r"\p{Nd}+([.,…]\p{Nd}+)?", "0"),
    (r"\p{P}|[$+<=>^`|~]", " "),
    (r"[\s\p{Z}]+", " "),
)
_SPACE = r"[\s\p{Z}]+"


def normal_form(text: pa.LargeStringArray, form: str, shingle: str) -> pa.LargeStringArray:
    """The texts whose shingles are taken.

    `lower`: words are folded by the word table itself; characters and bytes are those of the
    lower-cased text with runs of white space as one blank. `datatrove`: lower case, numbers as 0,
    no punctuation, no accents.
    """
    if form == "datatrove":
        text = pc.utf8_lower(text)
        for pattern, replacement in _DATATROVE:
            text = pc.replace_substring_regex(text, pattern, replacement)
        text = pc.utf8_normalize(text, "NFD")
        text = pc.replace_substring_regex(text, r"\p{Mn}+", "")
        return as_large_string(pc.utf8_trim_whitespace(text))
    if shingle == "word":
        return text
    return as_large_string(pc.replace_substring_regex(pc.utf8_lower(text), _SPACE, " "))


def shingle_sets(
    text: pa.LargeStringArray, normalize: str, unit: str, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """(offsets: int64[rows + 1], uint64 values) of the sets of shingles of texts, sorted."""
    from curate.dedup.minhash import kernel

    data, offsets = text_buffers(normal_form(text, normalize, unit))
    return kernel.text_shingles(kernel.KINDS[unit], data, offsets, size)
