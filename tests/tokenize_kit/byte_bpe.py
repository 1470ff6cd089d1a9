"""A tokenizer of byte-level BPE for tests: the default pattern, one size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer

from tokenize_kit.learn.bpe import train_byte_bpe
from tokenize_kit.learn.options import DEFAULT_PATTERN, TrainingOptions
from tokenize_kit.pattern.named import Digits, pattern_with


def split_pattern(digits: Digits) -> str:
    """The pattern of a tokenizer for which none is named, where one part is enough for the digits.

    That of GPT-4o (tiktoken, o200k_base): of the published patterns only this one counts combining
    marks (\\p{M}) as letters; without them Thai and Indic vowel signs leave their consonants.
    """
    (pattern,) = pattern_with(DEFAULT_PATTERN, digits).parts
    return pattern


def train_bpe(
    texts: Iterable[str], *, vocab: int, digits: Digits, special_tokens: Sequence[str]
) -> Tokenizer:
    """A tokenizer of one size with the default pattern; see `train_byte_bpe`."""
    options = TrainingOptions(sizes=(vocab,), digits=digits, special_tokens=tuple(special_tokens))
    return train_byte_bpe(((text, 1) for text in texts), options)[0].tokenizer
