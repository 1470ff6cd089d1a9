"""Our encoder: the ids of `tokenizers`, whatever the text and merges; else the library's own."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from tests.parameters import drawn
from tests.tokenize_kit.byte_bpe import train_bpe
from tests.tokenize_kit.encode.tokenizers import tokenizer_of
from tokenize_kit.encode.byte_bpe import ByteEncoder
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.normalize import find_odd, form_table
from tokenize_kit.formats.merges import SHORT
from tokenize_kit.formats.tokenizer_json import LETTERS, ORDER, to_letters
from tokenize_kit.pattern.named import PATTERNS

HARD = st.one_of(
    st.text(st.sampled_from("ab 1'sTกี่็漢é\n\t\u200d😀"), max_size=120),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)


def packed(texts):
    raw = [text.encode() for text in texts]
    return np.frombuffer(bytearray().join(raw), np.uint8), np.cumsum([0, *map(len, raw)])


def encoded(encoder, texts):
    ids, sizes = encoder.encode(*packed(texts))
    return [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])]


def by_library(tokenizer, texts):
    return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


@pytest.fixture(scope="module")
def trained():
    texts = ["the cat sat on the mat, then that", "กินข้าวที่บ้าน กินที่บ้าน", "a1b2 can't\n\tx"] * 9
    return train_bpe(iter(texts), vocab=380, digits="single", special_tokens=["<|endoftext|>"])


def test_any_text_has_the_ids_of_the_library(trained):
    trained.encode_special_tokens = True
    encoder = Encoder(trained)
    assert encoder.reason is None

    @settings(max_examples=drawn(100), deadline=None)
    @example([":\x00;", "\x00\x00", "the\x00the"])
    @given(st.lists(HARD, min_size=1, max_size=4))
    def check(texts):
        assert encoded(encoder, texts) == by_library(trained, texts)

    check()


MERGES = st.lists(
    st.tuples(st.text("ab", min_size=1, max_size=4), st.text("ab", min_size=1, max_size=4)),
    max_size=14,
)


@settings(max_examples=drawn(150), deadline=None)
@given(MERGES, st.lists(st.text("ab ", max_size=3 * SHORT), min_size=1, max_size=4))
def test_any_merges_give_the_ids_of_the_library(merges, texts):
    """Tokens that nothing spells, two merges of one spelling, a token merged before its parts."""
    pairs = list(dict.fromkeys((a.encode(), b.encode()) for a, b in merges))
    tokens = {bytes([byte]) for byte in range(256)} | {a + b for a, b in pairs}
    pairs = [(a, b) for a, b in pairs if a in tokens and b in tokens]
    tokens = {bytes([byte]) for byte in range(256)} | {a + b for a, b in pairs}
    pairs = [(a, b) for a, b in pairs if a in tokens and b in tokens]
    try:
        tokenizer = tokenizer_of(pairs)
    except Exception:  # parts that went with the pairs that spelled them
        return
    encoder = Encoder(tokenizer)
    assert encoder.reason is None
    assert encoded(encoder, texts) == by_library(tokenizer, texts)


@pytest.mark.parametrize("orderly", [True, False], ids=["by-trie", "by-rank"])
def test_a_word_of_many_letters_has_the_ids_of_the_library(trained, orderly):
    plan = Encoder(trained).plan
    encoder = ByteEncoder(dataclasses.replace(plan, bpe=plan.bpe._replace(orderly=orderly)))
    texts = ["ที่บ้าน" * 3000, "thecatthat" * 4000, "t" * 5000, "", "x"]
    assert encoded(encoder, texts) == by_library(trained, texts)


@pytest.mark.parametrize("count", [SHORT - 1, SHORT, SHORT + 1, 101])
def test_of_pairs_of_one_rank_the_leftmost_merges_first_whatever_the_length(count):
    """An odd run of one letter leaves its last letter alone, by scanning and by the heap."""
    plan = Encoder(tokenizer_of([(b"a", b"a")], patterns=(r"\S+",))).plan
    encoder = ByteEncoder(dataclasses.replace(plan, bpe=plan.bpe._replace(orderly=False)))
    single, double = ORDER.index(ord("a")), len(ORDER)
    (ids,) = encoded(encoder, ["a" * count])
    assert ids == [double] * (count // 2) + [single] * (count % 2)


def test_ids_do_not_depend_on_what_came_before(trained):
    encoder = Encoder(trained)
    texts = [f"word{k} {k * 7919:x} ข้าว{k}" for k in range(90_000)]  # more than the memory holds
    first = encoded(encoder, texts)
    assert encoded(encoder, texts[::-1]) == first[::-1]
    assert first[-500:] == by_library(trained, texts[-500:])


def test_words_that_are_tokens_are_taken_whole_where_the_model_says_so():
    """Llama 3's ignore_merges."""
    merges = [(b"a", b"b"), (b"c", b"d")]
    ids = {to_letters(bytes([byte])): number for number, byte in enumerate(ORDER)}
    ids |= {"ab": 256, "cd": 257, "abcd": 300}
    tokenizer = tokenizer_of(merges, ids=ids, ignore_merges=True)
    encoder = Encoder(tokenizer)
    texts = ["abcd abcde ab cd"]
    assert encoder.reason is None
    assert encoded(encoder, texts) == by_library(tokenizer, texts)
    assert 300 in encoded(encoder, texts)[0]


@pytest.mark.parametrize("name", [n for n in PATTERNS if n != "cl100k"])
def test_our_encoder_supports_published_patterns(name):
    tokenizer = tokenizer_of([(b" ", b"t"), (b"h", b"e"), (b" t", b"he")], PATTERNS[name].parts)
    encoder = Encoder(tokenizer)
    texts = ["the THE 12345 then\n\n the漢字かな", "I'll 3.14 😀 กี่"]
    assert encoder.reason is None
    assert encoded(encoder, texts) == by_library(tokenizer, texts)


def _with(change):
    def build():
        tokenizer = tokenizer_of([(b"a", b"b")])
        change(tokenizer)
        return tokenizer

    return build


def _no_bytes():
    return Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Tokenizer(models.WordLevel({"a": 0})), "no pre-tokenizer"),
        (_with(lambda t: setattr(t, "normalizer", normalizers.Lowercase())), "Lowercase"),
        (_with(lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.Whitespace())), "Whitespace"),
        (_with(lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.ByteLevel())), "add_prefix"),
        (lambda: tokenizer_of([], (r"(?<=a)b",)), "this kind of group"),
    ],
    ids=["word-level", "normaliser", "pre-tokeniser", "prefix-space", "pattern"],
)
def test_unsupported_tokenizers_use_the_library_and_give_the_reason(build, message):
    tokenizer = build()
    encoder = Encoder(tokenizer)
    assert message in (encoder.reason or "")
    if message != "no pre-tokenizer":
        texts = ["ab cab", "", "abab"]
        assert encoded(encoder, texts) == by_library(tokenizer, texts)


def test_added_tokens_in_the_text_are_found_as_the_library_finds_them():
    tokenizer = tokenizer_of([(b"a", b"b")])
    tokenizer.add_tokens([AddedToken("abba", normalized=False)])
    encoder = Encoder(tokenizer)
    texts = ["abab", "xabbax ab", "none"]
    assert encoder.reason is None
    assert encoded(encoder, texts) == by_library(tokenizer, texts)
    assert encoded(encoder, texts[:1]) == by_library(tokenizer, texts[:1])


def test_letters_stand_for_bytes_as_in_gpt2():
    assert sorted(LETTERS) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert json.loads(tokenizer_of([]).to_str())["model"]["vocab"]["Ġ"] == ORDER.index(0x20)


@pytest.mark.parametrize("form", ["NFC", "NFKC", "NFD", "NFKD"])
def test_normalised_texts_use_our_encoder_and_others_the_library(form):
    """As Qwen has NFC. Hangul, marks out of order, marks that compose, what Unicode 16 added."""
    tokenizer = tokenizer_of([(b"a", b"b"), (b" ", b"a")])
    tokenizer.normalizer = getattr(normalizers, form)()
    encoder = Encoder(tokenizer)
    assert encoder.reason is None

    @settings(max_examples=drawn(100), deadline=None)
    @example(["a\u0323\u0307", "a\u0307\u0323", "ab", "\u1100\u1161", "\uac00\u11a8", "e\u0301"])
    @example(["\u0e01\u0e48\u0e38", "\u0e01\u0e38\u0e48", "\U000105d2\u0307", "\u212b ﬁ ｱ"])
    @given(st.lists(st.one_of(HARD, st.text("ab\u0301\u0323\u0e38\u0e48각각éﬁ")), min_size=1))
    def check(texts):
        assert encoded(encoder, texts) == by_library(tokenizer, texts)

    check()


def test_normalised_texts_are_not_sent_to_the_library():
    """Else every text would go to the library: accents, Thai with its marks, Chinese, emoji."""
    texts = ["café naïve", "กินข้าวที่บ้านน้ำ", "我们，你好", "привет", "😀👍🏽", "한국어"]
    assert find_odd(*packed(texts), form_table("NFC"), False).tolist() == [False] * len(texts)
