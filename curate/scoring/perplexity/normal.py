"""CCNet's normal form of a text, before it is cut into pieces.

Source: normalize in cc_net/text_normalizer.py (Wenzek et al. 2020). Line ends are control
characters there, so that the end of a line and the beginning of the next one are glued together.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from curate.text.folding import CCNET_CONTROLS, CCNET_PUNCTUATION

# What stands for each of CCNET_PUNCTUATION; that of `１` is a quotation mark there, but digits are
# 0 before it is looked at.
_REPLACED = (
    ",", ".", ",", '"', '"', '"', '"', '"', '"', '"', '"', '"', '"', "'", ":", ":", "?", "!",
    "(", ")", ";", "-", " - ", ". ", "~", "'", "...", "-", "<", ">", "[", "]", "%", "-",
)  # fmt: skip
_DIGIT = re.compile(r"\d")


@lru_cache(maxsize=1)
def _characters() -> dict[int, str]:
    table = {ord(c): r for c, r in zip(CCNET_PUNCTUATION, _REPLACED, strict=True)}
    return table | dict.fromkeys(CCNET_CONTROLS, "")


def ccnet_text(text: str) -> str:
    """Stripped, in lower case, without accents (NFD without Mn), each digit 0, 34 punctuation
    characters as ASCII, without control characters."""
    text = text.strip().lower()
    if not text.isascii():
        split = unicodedata.normalize("NFD", text)
        text = "".join(c for c in split if unicodedata.category(c) != "Mn")
    return _DIGIT.sub("0", text).translate(_characters())
