"""Byte-level BPE learned by `tokenizers`, to hold ours against it.

It counts in 32 bits and makes the spellings of special tokens, which are taken out here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from tokenize_kit.byte_level import LETTERS, unspelled


def by_tokenizers(
    documents: Iterable[tuple[str, int]],
    parts: Sequence[str],
    most: int,
    least: int,
    longest: int,
    banned: Sequence[bytes],
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """(tokens, merges) as bpe.learn_merges gives them; weights are not heeded."""
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=most,
        min_frequency=least,
        initial_alphabet=sorted(LETTERS),
        max_token_length=min(longest, 1 << 32),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for text, _ in documents), trainer=trainer)
    model = json.loads(tokenizer.to_str())["model"]
    refused = set(banned)
    spelled = [unspelled(token) for token in sorted(model["vocab"], key=model["vocab"].__getitem__)]
    found = [(unspelled(left), unspelled(right)) for left, right in model["merges"]]
    while True:  # a token that is taken out takes those along that can only be made of it
        kept = [(a, b) for a, b in found if not {a, b, a + b} & refused]
        made = {a + b for a, b in kept}
        lost = {name for name in spelled if len(name) > 1 and name not in made} - refused
        if not lost:
            break
        refused |= lost
    names = [name for name in spelled if name not in refused]
    numbers = {name: k for k, name in enumerate(names)}
    return names, [(numbers[a], numbers[b]) for a, b in kept]
