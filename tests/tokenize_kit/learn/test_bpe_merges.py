"""Merges learned by our kernel: those of `tokenizers`, and counts that do not overflow."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.parameters import mostly_slow
from tests.tokenize_kit.byte_bpe import split_pattern, train_bpe
from tokenize_kit.learn.bpe import build_tokenizer, count_words, lay_out_words, learn_merges
from tokenize_kit.learn.options import DEFAULT_PATTERN
from tokenize_kit.learn.words import WordCounts
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.named import pattern_with

SPECIAL = ("<|endoftext|>",)


def reference(texts, vocab, digits="single"):
    """The tokenizer that `tokenizers` trains with the same settings."""
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
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return tokenizer


def ours(texts, vocab, digits="single"):
    return train_bpe(iter(texts), vocab=vocab, digits=digits, special_tokens=SPECIAL)


def forgetful(texts, vocab, **threshold):
    """Ours with another threshold below which pairs are forgotten."""
    parts = pattern_with(DEFAULT_PATTERN, "single").parts
    words = count_words(((text, 1) for text in texts), parts).words()
    banned = [token.encode() for token in SPECIAL]
    learned = learn_merges(lay_out_words(*words), vocab - len(SPECIAL), banned, **threshold)
    return build_tokenizer(*learned, SPECIAL, (), parts)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("ab c"), max_size=30), max_size=12),
    st.sampled_from([258, 262, 270, 400]),
)
def test_few_letters_and_many_ties_give_the_same_tokenizer(texts, vocab):
    assert ours(texts, vocab).to_str() == reference(texts, vocab).to_str()


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("ab c"), max_size=30), max_size=12),
    st.sampled_from([258, 262, 270, 400]),
    st.sampled_from([1e-3, 1e-2, 1e-1]),
)
def test_pairs_forgotten_below_a_threshold_are_found_again(texts, vocab, share):
    trained = forgetful(texts, vocab, share=share, step=2)
    assert trained.to_str() == reference(texts, vocab).to_str()


def test_forgetting_changes_no_merge(real_texts):
    results = [forgetful(real_texts, 4000, share=share).to_str() for share in (0.01, 1, 1000)]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("digits", mostly_slow(["triples", "single"]))
def test_real_texts_give_the_same_tokenizer(real_texts, digits):
    assert ours(real_texts, 8000, digits).to_str() == reference(real_texts, 8000, digits).to_str()


def counted(words):
    """Return a dict of counts as WordCounts.words returns it."""
    raw = [word.encode() for word in words]
    letters = np.frombuffer(bytearray().join(raw), np.uint8)
    return letters, np.cumsum([0, *map(len, raw)]), np.array(list(words.values()), np.int64)


def test_a_pair_may_occur_more_often_than_32_bits_hold():
    """`tokenizers` and rustbpe never merge such a pair, and say nothing."""
    words = {"th": 2**31, "he": 5, "xy": 2**40}
    names, merges = learn_merges(lay_out_words(*counted(words)), 259, [])
    assert names[256:] == [b"xy", b"th", b"he"]
    assert [names[k] for k in merges[0]] == [b"x", b"y"]


def test_a_special_token_is_never_made_of_text():
    texts = ["<|endoftext|>"] * 50
    tokenizer = ours(texts, 400)
    names = json.loads(tokenizer.to_str())["model"]["vocab"]
    assert names["<|endoftext|>"] == 0
    tokenizer.encode_special_tokens = True
    assert 0 not in tokenizer.encode(texts[0]).ids


def test_a_token_spelled_twice_is_one_token():
    """abc from ab + c and from a + bc, as `tokenizers` counts it: two merges, one id."""
    words = {"ab": 100, "abc": 60, "bc": 90, "xbc": 95, "aabc": 3, "bcabc": 7}
    names, merges = learn_merges(lay_out_words(*counted(words)), 300, [])
    assert len(set(names)) == len(names)
    assert len(merges) >= len(names) - 256


def test_words_are_counted_alike_in_any_batches():
    pattern = compile_pattern(split_pattern("single"))
    texts = [f"word{k % 97} and  ไทย {'x' * (k % 50)}\n".encode() * 3 for k in range(400)]
    results = []
    for size in (1, 7, 400):
        counts = WordCounts([pattern])
        for first in range(0, 400, size):
            batch = texts[first : first + size]
            counts.add(
                np.frombuffer(bytearray().join(batch), np.uint8), np.cumsum([0, *map(len, batch)])
            )
        letters, ends, numbers = counts.words()
        words = [bytes(letters[a:z]) for a, z in itertools.pairwise(ends)]
        results.append(dict(zip(words, numbers.tolist(), strict=True)))
        assert sum(len(w) * n for w, n in results[-1].items()) == sum(map(len, texts))
    assert results[0] == results[1] == results[2]


def test_room_grows_with_the_distinct_words():
    counts = WordCounts([compile_pattern(r"\S+|\s+")])
    texts = " ".join(f"{k:x}" for k in range(70_000)).encode()
    for _ in range(2):
        counts.add(np.frombuffer(texts, np.uint8), np.array([0, len(texts)]))
    _, _, numbers = counts.words()
    assert len(counts) == 70_001
    assert numbers[0] == 2 and numbers[1] == 2 * 69_999
