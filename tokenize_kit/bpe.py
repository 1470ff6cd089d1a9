"""Byte-level BPE, trained with the Hugging Face ``tokenizers`` library.

The text is not normalised. It is cut by a pattern, each piece is spelled in 256 byte symbols,
and the most frequent adjacent pair is merged until the vocabulary is full. All 256 bytes are in
the vocabulary, so every string of Unicode scalars round-trips exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

# The split pattern of GPT-4o (tiktoken, o200k_base). Of the published patterns only this one counts
# combining marks (\p{M}) as letters; without them Thai and Indic vowel signs are torn off their
# consonants. Only the digit group differs between our choices.
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_DIGITS = {"single": r"\p{N}", "triples": r"\p{N}{1,3}"}

# HF's trainer counts pairs in 32 bits: a pair that occurs more often is never merged, silently
# (huggingface/tokenizers issue 2058).
PAIR_COUNT_LIMIT = 2**31 - 1


def split_pattern(digits: str) -> str:
    """The pre-tokenisation pattern; ``digits`` is "single" (each alone) or "triples" (o200k)."""
    return "|".join(
        [
            rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTIONS}",
            rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTIONS}",
            _DIGITS[digits],
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    )


def train_bpe(
    texts: Iterator[str], *, vocab: int, digits: str, special_tokens: Sequence[str]
) -> Tokenizer:
    """Train on ``texts``; special tokens take ids 0, 1, ...; then the 256 bytes, then the merges.

    A pair must occur twice to be merged, so a small corpus gives fewer tokens than asked. Equal
    counts are broken by the pair's ids, so the result depends on the texts alone.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split_pattern(digits)), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=list(special_tokens),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return tokenizer
