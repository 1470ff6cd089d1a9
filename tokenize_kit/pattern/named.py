"""Pre-tokenisation patterns by name, most of them published, with sources and rules for digits.

Every one covers every text, so that nothing lies between its matches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tokenize_kit.pattern.graphemes import graphemes

Digits = Literal["single", "triples", "triples-right", "free"]
DIGITS: tuple[Digits, ...] = get_args(Digits)

_RULES = {"single": r"\p{N}", "triples": r"\p{N}{1,3}", "free": r"\p{N}+"}
# Groups of three from the right, in a run of digits; parse.right_groups reads this form.
RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"

_CASELESS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def _cl100k(contractions: str, digits: str, marks: str, newlines: str) -> str:
    return "|".join(
        [
            contractions,
            rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}{marks}]+",
            digits,
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            newlines,
            r"\s+(?!\S)",
            r"\s+",
        ]
    )


def o200k(digits: str) -> str:
    """GPT-4o's pattern with another rule for digits."""
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
    # Only whole numbers take the space before them.
    digits = rf" ?{digits}" if digits == _RULES["free"] else digits
    return rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"


def _cl100k_oniguruma(digits: str) -> str:
    """cl100k's with what Oniguruma reads otherwise written out: `$` and a possessive {1,3}+."""
    return (
        rf"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{{L}}\p{{N}}]?+\p{{L}}++|{digits}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++(?![\s\S])|\s*[\r\n]|\s+(?!\S)|\s"
    )


def _llama3(digits: str) -> str:
    return _cl100k(_CASELESS, digits, "", r"\s*[\r\n]+")


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


# Ideographs, as BERT's tokenizer puts spaces around them.
_IDEOGRAPHS = "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002ceaf\uf900-\ufaff"
_IDEOGRAPHS += "\U0002f800-\U0002fa1f"


def _bert(digits: str) -> str:
    numbers, rule = ("", "") if digits == _RULES["free"] else (r"\p{N}", f"{digits}|")
    signs = rf"\p{{P}}$+<=>^`|~{_IDEOGRAPHS}"
    return rf"[^\s{signs}{numbers}]+|{rule}[{signs}]|\s+"


def _whole(build: Callable[[str], str]) -> Callable[[str], tuple[str, ...]]:
    """Parts of a pattern whose rule for digits is one of its alternatives."""
    # The rest is cut as ever: groups from the right are made of whole numbers, behind it.
    return lambda rule: (build(_RULES["free"]), RIGHT) if rule == RIGHT else (build(rule),)


@dataclass(frozen=True)
class Pattern:
    """Patterns applied one after the other; `gguf`: the name llama.cpp knows it by, if it does.

    digits: the rule of its own; cut: the parts with another rule, as Oniguruma reads them.
    """

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
        _whole(o200k),  # llama.cpp's gpt-4o cuts otherwise: change/gguf_vocabulary.py
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


def chosen(name: str, digits: Digits) -> Pattern:
    """The pattern of a name with a rule for digits, for a tokenizer.json.

    `gguf` is of the pattern that comes out, whatever its name: Llama 3's with single digits is
    Qwen2's. Raises KeyError for names that are not in PATTERNS or DIGITS.
    """
    parts = PATTERNS[name].cut(RIGHT if digits == "triples-right" else _RULES[digits])
    known = next((p.gguf for p in PATTERNS.values() if p.parts == parts), None)
    return replace(PATTERNS[name], parts=parts, digits=digits, gguf=known)
