"""The published pre-tokenisation patterns, by name, with their sources.

Every one covers every text, so that nothing lies between its matches.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Pattern:
    """Patterns applied one after the other; `gguf`: the name llama.cpp knows it by, if it does."""

    parts: tuple[str, ...]
    source: str
    gguf: str | None = None


PATTERNS: dict[str, Pattern] = {
    "gpt2": Pattern(
        (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",),
        "Radford et al. 2019, encoder.py",
        "gpt-2",
    ),
    "cl100k": Pattern(
        (
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
            r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        ),
        "tiktoken_ext/openai_public.py",
    ),
    "o200k": Pattern((o200k(r"\p{N}{1,3}"),), "tiktoken_ext/openai_public.py", "gpt-4o"),
    "llama3": Pattern(
        (_cl100k(_CASELESS, r"\p{N}{1,3}", "", r"\s*[\r\n]+"),),
        "tokenizer.json of Llama 3",
        "llama-bpe",
    ),
    "qwen2": Pattern(
        (_cl100k(_CASELESS, r"\p{N}", "", r"\s*[\r\n]+"),), "tokenizer.json of Qwen2", "qwen2"
    ),
    "deepseek": Pattern(
        (
            r"\p{N}{1,3}",
            r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        "tokenizer.json of DeepSeek-V3",
        "deepseek-v3",
    ),
}
