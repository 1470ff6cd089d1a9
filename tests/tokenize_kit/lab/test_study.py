"""Sizes of a vocabulary out of one training."""

from __future__ import annotations

import math
import random

import pytest

from llmcurate.base.errors import LlmcurateError
from tests.tokenize_kit.byte_bpe import split_pattern, train_bpe
from tokenize_kit.lab.study import study
from tokenize_kit.learn.bpe import (
    build_tokenizer,
    count_words,
    first_merges,
    lay_out_words,
    learn_merges,
)

SPECIAL = ["<|endoftext|>"]


@pytest.fixture(scope="module")
def texts():
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdeไทย", k=draw.randint(1, 9))) for _ in range(600)]
    return [" ".join(draw.choices(words, k=60)) for _ in range(300)] + [
        "aaaaaaa aaaa aaaaaaaaa"
    ] * 9


@pytest.mark.parametrize("vocab", [258, 259, 300, 411, 700])
def test_a_smaller_vocabulary_is_what_was_learned_first(texts, vocab):
    counted = count_words(((text, 1) for text in texts), [split_pattern("single")])
    names, merges = learn_merges(lay_out_words(*counted.words()), 899, [b"<|endoftext|>"])
    smaller = build_tokenizer(
        *first_merges(names, merges, vocab - 1), SPECIAL, (), [split_pattern("single")]
    )
    alone = train_bpe(iter(texts), vocab=vocab, digits="single", special_tokens=SPECIAL)
    assert smaller.to_str() == alone.to_str()
    assert smaller.get_vocab_size() == vocab


def test_tokens_are_those_of_a_tokenizer_trained_alone(texts):
    result = study(texts, [600, 300], width=64)
    assert [row["vocab"] for row in result["rows"]] == [300, 600]
    assert result["learned_from"] + result["measured_on"] == len(texts)
    assert result["rows"][1]["embedding_parameters"] == 600 * 64
    for name, sign in {"boundary_f1": 1, "whole_share": 1, "fertility": -1}.items():
        assert (result["rows"][1][name] - result["rows"][0][name]) * sign > 0
    again = study(texts, [300])
    assert again["rows"][0]["tokens"] == result["rows"][0]["tokens"]
    assert again["beyond"] is True


def test_recommended_is_the_last_size_that_every_step_to_it_was_worth(texts):
    sizes = [280, 400, 560, 800, 1100]
    result = study(texts, sizes, worth=0.0)
    saved = [row["saved"] for row in result["rows"]]
    assert saved[0] is None and all(s > 0 for s in saved[1:])
    before, row = result["rows"][:2]
    fewer = row["tokens"] / before["tokens"]
    assert (1 - saved[1]) ** math.log2(400 / 280) == pytest.approx(fewer)
    for k in range(1, len(sizes)):
        limit = saved[k] + 1e-9
        first = next(i for i in range(1, len(sizes)) if saved[i] < limit)
        assert study(texts, sizes, worth=limit)["recommended"] == sizes[first - 1]


def test_a_corpus_without_further_merges_ends_the_study():
    texts = [f"word{k % 97} again" for k in range(200)]
    result = study(texts, [300, 5000, 9000])
    assert [row["asked"] for row in result["rows"]][-1] < 9000
    assert result["rows"][-1]["vocab"] < result["rows"][-1]["asked"]


@pytest.mark.parametrize(
    ("texts", "sizes"),
    [
        pytest.param(["one"], [300], id="one-text"),
        pytest.param([], [300], id="no-text"),
        pytest.param(["", "\x00"], [300], id="nothing-in-them"),
        pytest.param(["a"] * 90, [100], id="smaller-than-the-bytes"),
        pytest.param(["a"] * 90, [], id="no-size"),
    ],
)
def test_unusable_study_settings_are_refused(texts, sizes):
    with pytest.raises(LlmcurateError) as caught:
        study(texts, sizes)
    assert caught.value.exit_code == 2
