"""Named pre-tokenisation patterns, most of them published, with sources and rules for digits.

Every pattern covers every text: no text is left between its matches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from tokenize_kit.pattern.categories import SCRIPTS, scripts

# SCRIPT_BOUNDARIES cuts between two scripts and never within one. Common and Inherited code points
# (white space, signs, digits, most marks) belong to the script before them or, at the beginning of
# a piece, to the script after them. As a regular expression it has some 170 alternatives; its table
# is built directly (script_rows), with one state per script.

_SHARED = ("Common", "Inherited")
# The alternatives are tried in order: first the scripts that most texts are in.
_FIRST = (
    "Latin Han Cyrillic Hiragana Katakana Arabic Devanagari Thai Hangul Bengali Greek Hebrew Tamil"
    " Telugu Lao Khmer Myanmar"
).split()
_ORDER = [*_FIRST, *(s for s in SCRIPTS if s not in _FIRST and s not in _SHARED)]
_ANY = r"\p{Common}\p{Inherited}"

SCRIPT_BOUNDARIES = (
    rf"[{_ANY}]*(?:" + "|".join(rf"\p{{{s}}}[\p{{{s}}}{_ANY}]*" for s in _ORDER) + rf")|[{_ANY}]+"
)


@lru_cache(maxsize=1)
def script_rows() -> tuple[list[list[int]], np.ndarray]:
    """Return the state machine of SCRIPT_BOUNDARIES as (rows of automaton.Table.steps, the class of
    every code point: uint8[0x110000]). The states are: 0 dead; 1 at the beginning; 2 after code
    points that all belong to several scripts; 3 + k after a code point of script k."""
    positions = [SCRIPTS.index(name) for name in _ORDER]
    class_of = np.zeros(len(SCRIPTS), np.uint8)  # 0: shared
    class_of[positions] = np.arange(1, len(positions) + 1)
    count = len(positions)
    begin = [2 * 2, *(2 * (3 + k) for k in range(count)), 0]
    shared = [2 * 2 + 1, *(2 * (3 + k) + 1 for k in range(count)), 1]
    rows = [[0] * (count + 2), begin, shared]
    for k in range(count):
        row = [1] * (count + 2)
        row[0] = row[1 + k] = 2 * (3 + k) + 1
        rows.append(row)
    return rows, class_of[scripts()]


# `graphemes` is a pattern whose pieces never end within a grapheme cluster (Unicode Annex 29),
# based on o200k. No published pattern does that: they cut a letter from the joiner after it
# (Persian's U+200C), a digit from its keycap, a heart from the rest of its sequence.

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# Letters that no cluster begins with (SARA AM of Thai and Lao, half-width voiced marks) ...
_ATTACHED = r"\x{E33}\x{EB3}\x{FF9E}\x{FF9F}"
# ... and all that belongs to the character before it: marks, joiners, skin tones, tags.
_MARK = rf"\p{{M}}\x{{200C}}\x{{200D}}\x{{1F3FB}}-\x{{1F3FF}}\x{{E0020}}-\x{{E007F}}{_ATTACHED}"
# Characters that belong to the next one (Grapheme_Cluster_Break=Prepend).
_PREPENDED = (
    r"\x{600}-\x{605}\x{6DD}\x{70F}\x{890}\x{891}\x{8E2}\x{D4E}\x{110BD}\x{110CD}\x{111C2}\x{111C3}"
    r"\x{113D1}\x{1193F}\x{11941}\x{11A3A}\x{11A84}-\x{11A89}\x{11D46}\x{11F02}"
)
_PICTOGRAPH = r"\x{2139}"  # the one letter that emoji are joined to
_LETTER = rf"(?![{_PREPENDED}{_PICTOGRAPH}])"
_GRAPHEMES_UPPER, _GRAPHEMES_LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}", r"\p{Ll}\p{Lm}\p{Lo}"
_UPPERS = rf"{_LETTER}[{_GRAPHEMES_UPPER}](?:{_LETTER}[{_GRAPHEMES_UPPER}{_MARK}])*"
_LOWERS = rf"{_LETTER}[{_GRAPHEMES_LOWER}](?:{_LETTER}[{_GRAPHEMES_LOWER}{_MARK}])*"
_BEFORE = rf"[^\r\n\p{{L}}\p{{N}}{_MARK}{_PREPENDED}]?"
_SIGN = rf"(?:[^\s\p{{L}}\p{{N}}{_PREPENDED}]|[{_PICTOGRAPH}{_ATTACHED}])"


def graphemes(digits: str) -> str:
    r"""Return the `graphemes` pattern with the given rule for digits, such as \p{N}."""
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


Digits = Literal["single", "triples", "triples-right", "free"]
DIGITS: tuple[Digits, ...] = get_args(Digits)

_RULES = {"single": r"\p{N}", "triples": r"\p{N}{1,3}", "free": r"\p{N}+"}
# Groups of three from the right, in a run of digits; parse.right_groups reads this form.
RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"

_CASELESS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def o200k(digits: str) -> str:
    """Return GPT-4o's pattern with the given rule for digits."""
    return "|".join(
        [
            rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CASELESS}?",
            rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CASELESS}?",
            digits,
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    )


def _gpt2(digits: str) -> str:
    # Only the rule that keeps numbers whole includes the space before them.
    digits = rf" ?{digits}" if digits == _RULES["free"] else digits
    return rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"


def _cl100k_oniguruma(digits: str) -> str:
    """Return cl100k's pattern without `$` and `{1,3}+`, which have another meaning in Oniguruma."""
    return (
        rf"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{{L}}\p{{N}}]?+\p{{L}}++|{digits}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++(?![\s\S])|\s*[\r\n]|\s+(?!\S)|\s"
    )


def _llama3(digits: str) -> str:
    return "|".join(
        [
            _CASELESS,
            r"[^\r\n\p{L}\p{N}]?[\p{L}]+",
            digits,
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    )


_DEEPSEEK = (
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)


def _whitespace(digits: str) -> str:
    if digits == _RULES["free"]:
        return r"\S+|\s+"
    return rf"[^\s\p{{N}}]+|{digits}|\s+"


def _metaspace(digits: str) -> str:
    if digits == _RULES["free"]:
        return r" ?[^ \r\n]+|[\r\n]+| "
    return rf" ?[^ \r\n\p{{N}}]+|{digits}|[\r\n]+| "


# The ideographs that BERT's tokenizer puts spaces around.
_IDEOGRAPHS = "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002ceaf\uf900-\ufaff"
_IDEOGRAPHS += "\U0002f800-\U0002fa1f"


def _bert(digits: str) -> str:
    numbers, rule = ("", "") if digits == _RULES["free"] else (r"\p{N}", f"{digits}|")
    signs = rf"\p{{P}}$+<=>^`|~{_IDEOGRAPHS}"
    return rf"[^\s{signs}{numbers}]+|{rule}[{signs}]|\s+"


def _whole(build: Callable[[str], str]) -> Callable[[str], tuple[str, ...]]:
    # Digits are one alternative of the pattern. Groups from the right are made after it, from the
    # whole numbers that it leaves.
    return lambda rule: (build(_RULES["free"]), RIGHT) if rule == RIGHT else (build(rule),)


@dataclass(frozen=True)
class Pattern:
    """A list of expressions that split text, applied one after the other. parts: the expressions,
    in Oniguruma's syntax; source: where they come from; digits: how they split digits; cut: returns
    the parts with another expression for digits; gguf: llama.cpp's name for the list, or None."""

    parts: tuple[str, ...]
    source: str
    digits: Digits
    cut: Callable[[str], tuple[str, ...]]
    gguf: str | None = None


PATTERNS: dict[str, Pattern] = {
    "gpt2": Pattern(
        (_gpt2(_RULES["free"]),), "Radford et al. 2019, encoder.py", "free", _whole(_gpt2), "gpt-2"
    ),
    "cl100k": Pattern(
        (
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
            r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        ),
        "tiktoken_ext/openai_public.py",
        "triples",
        _whole(_cl100k_oniguruma),
    ),
    "o200k": Pattern(
        (o200k(_RULES["triples"]),),
        "tiktoken_ext/openai_public.py",
        "triples",
        _whole(o200k),  # llama.cpp's gpt-4o cuts differently (formats/gguf.py)
    ),
    "llama3": Pattern(
        (_llama3(_RULES["triples"]),),
        "tokenizer.json of Llama 3",
        "triples",
        _whole(_llama3),
        "llama-bpe",
    ),
    "qwen2": Pattern(
        (_llama3(_RULES["single"]),), "tokenizer.json of Qwen2", "single", _whole(_llama3), "qwen2"
    ),
    "deepseek": Pattern(
        (_RULES["triples"], *_DEEPSEEK),
        "tokenizer.json of DeepSeek-V3",
        "triples",
        lambda rule: (rule, *_DEEPSEEK),
        "deepseek-v3",
    ),
    "whitespace": Pattern(
        (_whitespace(_RULES["free"]),),
        "words, and runs of white space",
        "free",
        _whole(_whitespace),
    ),
    "metaspace": Pattern(
        (_metaspace(_RULES["free"]),),
        "SentencePiece: a word takes the space before it; here it ends at a newline, too",
        "free",
        _whole(_metaspace),
    ),
    "graphemes": Pattern(
        (graphemes(_RULES["single"]),),
        "as o200k, but no piece ends within a grapheme cluster",
        "single",
        _whole(graphemes),
    ),
    "bert": Pattern(
        (_bert(_RULES["free"]),),
        "Devlin et al. 2018, tokenization.py: words, single signs, single ideographs",
        "free",
        _whole(_bert),
    ),
}


def superwords(digits: Digits) -> Pattern:
    """Return the pattern for tokens that may span words. Numbers are separate pieces; the text
    between numbers is cut only after colons and at the ends of lines."""
    cut = _whole(lambda digits: rf"{digits}|[^\r\n:\p{{N}}]+:*[\r\n]*|:+[\r\n]*|[\r\n]+")
    parts = cut(RIGHT if digits == "triples-right" else _RULES[digits])
    return Pattern(parts, "Liu et al. 2025 (SuperBPE), and lines", digits, cut)


def pattern_with(name: str, digits: Digits) -> Pattern:
    """Return a named pattern with the given rule for digits, for a tokenizer.json. Its `gguf`, the
    name in llama.cpp, follows from the expressions, not from `name`: Llama 3's pattern with single
    digits has Qwen2's `gguf`. Raises KeyError for names that are not in PATTERNS or DIGITS."""
    parts = PATTERNS[name].cut(RIGHT if digits == "triples-right" else _RULES[digits])
    gguf = next((p.gguf for p in PATTERNS.values() if p.parts == parts), None)
    return replace(PATTERNS[name], parts=parts, digits=digits, gguf=gguf)
