"""Texts in the form that deduplication compares: unchanged, in NFC, or in NFKC_Casefold.

NFKC_Casefold (Unicode Standard, section 3.13, R5; UAX #31) is defined per character, with NFC at
the end. Applying NFKC, case folding and the removal of ignorable characters to the whole text gives
the same result, except that a Greek iota below a letter may change places with accents."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from unicodedata import normalize

import numpy as np
import pyarrow as pa

from curate.text.buffers import text_array, text_buffers

# Default_Ignorable_Code_Point (DerivedCoreProperties.txt).
IGNORABLE = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]+"
)
_IOTA_BELOW = re.compile("[\u0345\u037a\u1f80-\u1fff]")


def _folded(text: str) -> str:
    return normalize("NFKC", IGNORABLE.sub("", normalize("NFKC", text).casefold()))


@lru_cache(maxsize=4096)
def casefold_of(character: str) -> str:
    """Return the property NFKC_Casefold of a character."""
    return _folded(character)


def nfkc_casefold(text: str) -> str:
    """Return toNFKC_Casefold of a text."""
    if text.isascii():
        return text.lower()
    if _IOTA_BELOW.search(text):
        return normalize("NFC", "".join(map(casefold_of, text)))
    return _folded(text)


def in_form(
    data: np.ndarray, start: np.ndarray, end: np.ndarray, form: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (data: uint8[], start, end: int64[pieces]): the pieces data[start[k]:end[k]] in the
    form `nfc` or `nfkc_cf`, joined in a new array. For the form `raw`, return the arguments."""
    if form == "raw":
        return data, start, end
    make = nfkc_casefold if form == "nfkc_cf" else partial(normalize, "NFC")
    view = memoryview(data)  # type: ignore[arg-type]
    bounds = zip(start.tolist(), end.tolist(), strict=True)
    pieces = [make(str(view[a:z], "utf-8")).encode() for a, z in bounds]
    ends = np.cumsum([0, *map(len, pieces)])
    return np.frombuffer(bytearray().join(pieces), np.uint8), ends[:-1], ends[1:]


def texts_in_form(text: pa.LargeStringArray, form: str) -> pa.LargeStringArray:
    """Return the texts in the normal form named `form`. A null text becomes empty, but stays null
    if `form` is `raw`."""
    if form == "raw":
        return text
    data, offsets = text_buffers(text)
    new, _, ends = in_form(data, offsets[:-1], offsets[1:], form)
    return text_array(new, np.concatenate([[0], ends]))
