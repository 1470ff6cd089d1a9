"""A pattern whose pieces never end within a grapheme cluster (Unicode Annex 29), after o200k.

No published pattern does that: they cut a letter from the joiner behind it (Persian's U+200C), a
digit from its keycap, a heart from the rest of its sequence.
"""

from __future__ import annotations

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# Letters that no cluster begins with (SARA AM of Thai and Lao, half-width voiced marks) ...
_ATTACHED = r"\x{E33}\x{EB3}\x{FF9E}\x{FF9F}"
# ... and all that goes with the character before it: marks, joiners, skin tones, tags.
_MARK = rf"\p{{M}}\x{{200C}}\x{{200D}}\x{{1F3FB}}-\x{{1F3FF}}\x{{E0020}}-\x{{E007F}}{_ATTACHED}"
# What goes with the character behind it (Grapheme_Cluster_Break=Prepend).
_PREPENDED = (
    r"\x{600}-\x{605}\x{6DD}\x{70F}\x{890}\x{891}\x{8E2}\x{D4E}\x{110BD}\x{110CD}\x{111C2}\x{111C3}"
    r"\x{113D1}\x{1193F}\x{11941}\x{11A3A}\x{11A84}-\x{11A89}\x{11D46}\x{11F02}"
)
_PICTOGRAPH = r"\x{2139}"  # the one letter that emoji are joined to
_LETTER = rf"(?![{_PREPENDED}{_PICTOGRAPH}])"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}", r"\p{Ll}\p{Lm}\p{Lo}"
_UPPERS = rf"{_LETTER}[{_UPPER}](?:{_LETTER}[{_UPPER}{_MARK}])*"
_LOWERS = rf"{_LETTER}[{_LOWER}](?:{_LETTER}[{_LOWER}{_MARK}])*"
_BEFORE = rf"[^\r\n\p{{L}}\p{{N}}{_MARK}{_PREPENDED}]?"
_SIGN = rf"(?:[^\s\p{{L}}\p{{N}}{_PREPENDED}]|[{_PICTOGRAPH}{_ATTACHED}])"


def graphemes(digits: str) -> str:
    """The pattern with a rule for digits, written with \\p{N}."""
    ends = rf"(?:{_CONTRACTIONS}[{_MARK}]*)?"
    inner = "|".join(
        [
            rf"{_BEFORE}(?:{_UPPERS})?{_LOWERS}{ends}",
            rf"{_BEFORE}{_UPPERS}(?:{_LOWERS})?{ends}",
            digits.replace(r"\p{N}", rf"(?:\p{{N}}[{_MARK}]*)"),
            rf" ?{_SIGN}+(?:[\r\n/][{_MARK}]*)*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            rf"\s+[{_MARK}]*",
        ]
    )
    return rf"[{_PREPENDED}]*(?:{inner})|[{_PREPENDED}]+"
