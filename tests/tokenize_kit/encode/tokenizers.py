"""Tokenizers of a few merges."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from tokenize_kit.formats.tokenizer_json import ORDER, to_letters


def tokenizer_of(merges, patterns=(r"\s+|\S+",), ids=None, **settings):
    """A byte-level BPE of these merges of byte strings."""
    words = [to_letters(bytes([byte])) for byte in ORDER]
    for first, second in merges:
        if (word := to_letters(first + second)) not in words:
            words.append(word)
    numbers = {word: number for number, word in enumerate(words)}
    pairs = [(to_letters(first), to_letters(second)) for first, second in merges]
    tokenizer = Tokenizer(models.BPE(vocab=ids or numbers, merges=pairs, **settings))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(p), "isolated") for p in patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer
