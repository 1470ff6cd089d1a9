"""Learners of merges: our own, SentencePiece's, and that of `tokenizers`.

Words are numbered symbols (bytes, characters, or WordPiece's two kinds of characters), so that a
learner takes all of them. SentencePiece is shown each symbol as a private-use character.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import AnyStr

import numpy as np
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from llmcurate.base.errors import RunFailed
from tokenize_kit.formats.tokenizer_json import LETTERS, from_letters
from tokenize_kit.learn.bpe_merges import LONGEST, learn
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.words import lay_out

_PLANES = ((0xF0000, 0xFFFE), (0x100000, 0xFFFE))  # private use: first code point, how many
MOST_SYMBOLS = sum(size for _, size in _PLANES)
_LONGEST = 512  # symbols of a piece at most in SentencePiece
_WORD = 60_000  # symbols of a word: SentencePiece counts positions in 16 bits


@dataclass(frozen=True)
class Words:
    """symbols: int32[], 0 to bases - 1, of all words one after the other; sizes, counts:
    int64[words]; bases: how many symbols there are."""

    symbols: np.ndarray
    sizes: np.ndarray
    counts: np.ndarray
    bases: int


Merge = tuple[int, int, int]  # the left and the right token, and the one that they make


def learn_own(
    words: Words, most: int, least: int, longest: int, banned: Sequence[Sequence[int]]
) -> list[Merge]:
    """Merges by `bpe_merges.learn`; most: tokens, symbols included; longest: symbols of a token;
    banned: tokens, as symbols, that no merge makes."""
    joined = np.array([symbol for token in banned for symbol in token], np.int32)
    bounds = np.cumsum([0, *map(len, banned)])
    text = lay_out(words.symbols, np.append(0, np.cumsum(words.sizes)), words.counts)
    merges = learn(text, words.bases, most, least, longest, joined, bounds)
    return [(left, right, merged) for left, right, merged in merges.tolist()]


def learn_sentencepiece(
    words: Words, most: int, longest: int, banned: Sequence[Sequence[int]]
) -> list[Merge]:
    """Merges by SentencePiece's BPE trainer.

    Its pieces come in the order of its merges. Their merges are all ways to make a piece of two
    others, which is how SentencePiece itself encodes: by the piece, not by its parts.
    """
    import sentencepiece

    if words.bases > MOST_SYMBOLS:
        raise RunFailed(f"backend sentencepiece: more than {MOST_SYMBOLS} characters; use own")
    if not len(words.symbols) or most <= words.bases:
        return []
    occurring = len(np.unique(words.symbols))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(words),
            input_format="tsv",
            model_writer=model,
            model_type="bpe",
            # Merges, symbols, the unknown token, and as many more as may turn out to be banned.
            vocab_size=most - words.bases + occurring + 1 + len(banned),
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            split_by_unicode_script=False,
            split_by_number=False,
            character_coverage=1.0,
            max_sentencepiece_length=min(longest, _LONGEST),
            max_sentence_length=2**30,
            input_sentence_size=0,
            shuffle_input_sentence=False,
            num_threads=1,
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else "no reason given"
        raise RunFailed(f"SentencePiece could not train: {reason}; use backend own") from error
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    spelled = (_symbols(pieces.id_to_piece(k)) for k in range(1, pieces.get_piece_size()))
    refused = set(map(tuple, banned))
    return _merges_of((s for s in spelled if len(s) > 1 and s not in refused), words.bases, most)


def _letter(symbol: int) -> str:
    (first, size), (second, _) = _PLANES
    return chr(first + symbol if symbol < size else second + symbol - size)


def _symbols(piece: str) -> tuple[int, ...]:
    (first, size), (second, _) = _PLANES
    return tuple(ord(c) - first if ord(c) < second else ord(c) - second + size for c in piece)


def _lines(words: Words) -> Iterator[str]:
    """Words with their counts, sorted: the order in which they were met decides nothing."""
    letters = np.array([_letter(k) for k in range(words.bases)])
    ends = np.append(0, np.cumsum(words.sizes))
    texts = (words.symbols[a:z] for a, z in pairwise(ends.tolist()))
    counted = zip(texts, words.counts.tolist(), strict=True)
    spelled = sorted(("".join(letters[symbols]), count) for symbols, count in counted)
    for word, count in spelled:
        for k in range(0, len(word), _WORD):
            yield f"{word[k : k + _WORD]}\t{count}"


def _merges_of(pieces: Iterator[tuple[int, ...]], bases: int, most: int) -> list[Merge]:
    numbers: dict[tuple[int, ...], int] = {(k,): k for k in range(bases)}
    merges = []
    for piece in pieces:
        if len(numbers) >= most:
            break
        splits = ((piece[:k], piece[k:]) for k in range(1, len(piece)))
        pairs = [(numbers[a], numbers[b]) for a, b in splits if a in numbers and b in numbers]
        if pairs:  # a piece whose parts were banned cannot be made
            merges += [(left, right, len(numbers)) for left, right in sorted(pairs)]
            numbers[piece] = len(numbers)
    return merges


def token_names(bases: Sequence[AnyStr], merges: Sequence[Merge]) -> list[AnyStr]:
    """The tokens: bases, then what merges make."""
    names = list(bases)
    for left, right, merged in merges:
        if merged == len(names):
            names.append(names[left] + names[right])
    return names


def learn_with_backend(
    words: Words, options: TrainingOptions, most: int, scale: int, banned: Sequence[Sequence[int]]
) -> list[Merge]:
    """Merges by the learner that the options name."""
    longest = options.max_token_length or LONGEST
    if options.learner == "sentencepiece":
        return learn_sentencepiece(words, most, longest, banned)
    return learn_own(words, most, options.min_frequency * scale, longest, banned)


def learn_tokenizers(
    documents: Iterable[tuple[str, int]],
    parts: Sequence[str],
    most: int,
    least: int,
    longest: int,
    banned: Sequence[bytes],
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """(tokens, merges) as bpe.learn_merges gives them, learned by `tokenizers`.

    It counts in 32 bits, without the documents' weights. It makes the spellings of special tokens,
    which are taken out here.
    """
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
    spelled = [
        from_letters(token) for token in sorted(model["vocab"], key=model["vocab"].__getitem__)
    ]
    merges = [(from_letters(left), from_letters(right)) for left, right in model["merges"]]
    while True:  # a token that is taken out takes those along that can only be made of it
        kept = [(a, b) for a, b in merges if not {a, b, a + b} & refused]
        merged = {a + b for a, b in kept}
        lost = {name for name in spelled if len(name) > 1 and name not in merged} - refused
        if not lost:
            break
        refused |= lost
    names = [name for name in spelled if name not in refused]
    numbers = {name: k for k, name in enumerate(names)}
    return names, [(numbers[a], numbers[b]) for a, b in kept]
