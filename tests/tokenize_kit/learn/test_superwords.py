"""SuperBPE: tokens over words as a plain reference learns them, alike for both encoders."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.tokenize_kit.learn.reference_bpe import cut, go_on, renewed, symbols
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.formats.tokenizer_json import ORDER, from_letters
from tokenize_kit.lab.extend import extend
from tokenize_kit.lab.prune import prune
from tokenize_kit.learn.bpe import learn_superwords
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.training import train_tokenizer

LETTERS = st.text(st.sampled_from("ab \n:1"), max_size=40)
MANY_WORDS = st.sampled_from(["a b " * 4, "b" + " a" * 7])
PROSE = [
    "of the end and of the beginning, in the middle of the night: by the way.\n" * 8,
    "One of the three, by the way, of the 1234 in the end; at the end of the day\n\n" * 8,
    "ภาษาไทย ครับ 漢字かな 'tis  a\ttab  in the end of the day of the end\r\n" * 8,
]


def by_hand(texts, words, lines, subwords, size):
    names, merges = [bytes([byte]) for byte in ORDER], []
    go_on(symbols(cut(texts, words)), names, merges, subwords)
    pieces = symbols(cut(texts, lines))
    for pair in merges:
        pieces = renewed(pieces, pair, names.index(names[pair[0]] + names[pair[1]]))
    go_on(pieces, names, merges, size, lambda spelled, names: spelled in names or too_long(spelled))
    return names, merges


def too_long(spelled):
    return len(spelled.split()) > 4


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.one_of(LETTERS, MANY_WORDS), max_size=8),
    st.integers(257, 264),
    st.integers(1, 20),
)
def test_merges_are_those_of_the_rule_by_hand(texts, subwords, more):
    options = TrainingOptions(sizes=(600,), superwords=300)
    words, lines = options.counted_parts, options.cutting.parts
    size = subwords + more
    documents = ((text, 1) for text in texts)
    learned = learn_superwords(documents, words, lines, subwords, size, [], 2, 1 << 40)
    assert learned == by_hand(texts, words, lines, subwords, size)


def ids_of(encoder, texts):
    """Ids by our encoder, by `tokenizers`, and the texts that come back."""
    raw = [text.encode() for text in texts]
    data, offsets = np.frombuffer(bytearray().join(raw), np.uint8), np.cumsum([0, *map(len, raw)])
    assert encoder.reason is None
    tokenizer = encoder.tokenizer
    theirs = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    back = [tokenizer.decode(ids, skip_special_tokens=False) for ids in theirs]
    return encoder.encode(data, offsets)[0].tolist(), [i for ids in theirs for i in ids], back


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("superwords")
    card = train_tokenizer(PROSE, folder, vocab=420, superwords=330, space_runs=4)
    return Encoder(load_tokenizer(folder / "tokenizer.json")), card


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(LETTERS, st.text(max_size=30), st.sampled_from(PROSE)), max_size=6))
def test_both_encoders_give_the_same_ids_and_texts_come_back(trained, texts):
    ours, theirs, back = ids_of(trained[0], texts)
    assert ours == theirs and back == texts


def test_tokens_span_words_and_no_colon_digit_or_end_of_line(trained):
    vocab = [from_letters(t) for t in trained[0].tokenizer.get_vocab() if not t.startswith("<|")]
    over = [token for token in vocab if b" " in token.strip()]
    assert over and all(len(token.split()) <= 4 for token in vocab)
    for token in over:
        assert not any(byte in token for byte in b"0123456789")
        assert not set(token.rstrip(b"\r\n").rstrip(b":")) & set(b":\r\n")


def test_the_card_says_the_algorithm(trained):
    card = trained[1]
    assert card.algorithm.startswith("SuperBPE") and card.settings["superwords"] == 330
    assert card.gguf_pattern is None and "llama.cpp" in card.notes[0]


def test_a_smaller_vocabulary_is_the_beginning_of_a_larger_one(tmp_path):
    from tokenize_kit.learn.training import train_tokenizers

    both = TrainingOptions(sizes=(360, 400), superwords=320)
    train_tokenizers(PROSE, tmp_path, both)
    train_tokenizer(PROSE, tmp_path / "alone", vocab=360, superwords=320)
    files = [tmp_path / name / "tokenizer.json" for name in ("360", "alone")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_few_texts_give_superwords_before_the_size_is_reached(tmp_path):
    card = train_tokenizer(["by the way " * 3], tmp_path, vocab=500, superwords=400)
    vocab = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert "ĠtheĠway" in vocab and card.vocab < 400


def test_the_order_of_texts_decides_nothing(tmp_path):
    for name, texts in (("a", PROSE), ("b", PROSE[::-1])):
        train_tokenizer(texts, tmp_path / name, vocab=400, superwords=330)
    files = [(tmp_path / name / "tokenizer.json").read_bytes() for name in "ab"]
    assert files[0] == files[1]


def test_a_superword_tokenizer_can_be_extended_and_pruned(tmp_path):
    train_tokenizer(PROSE, tmp_path, vocab=360, superwords=330)
    texts = [*PROSE, *[f"by the way, the other end {k}\n" for k in range(60)]]
    extend(tmp_path, [pack_texts(texts)], tmp_path / "more", 10)
    prune(tmp_path, lambda: [pack_texts(PROSE)], tmp_path / "less", most=340)
    for name, tokens in (("more", 370), ("less", 340)):
        encoder = Encoder(load_tokenizer(tmp_path / name / "tokenizer.json"))
        assert encoder.tokenizer.get_vocab_size() == tokens
        ours, theirs, back = ids_of(encoder, texts)
        assert ours == theirs and back == texts


def test_real_texts_come_back_from_ids_that_both_encoders_give(real_texts, tmp_path):
    train_tokenizer(real_texts, tmp_path, vocab=3000, superwords=2500)
    encoder = Encoder(load_tokenizer(tmp_path / "tokenizer.json"))
    ours, theirs, back = ids_of(encoder, real_texts[:40])
    assert ours == theirs and back == real_texts[:40]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model": "char-bpe"}, "superwords: only for the model bpe"),
        ({"graphemes": True}, "graphemes: not with superwords"),
        ({"regex": (r"\S+|\s+",)}, "regex: not with superwords"),
        ({"space_token": "<_>"}, "space-token: not with superwords"),
        ({"superwords": 500}, "superwords 500: give 258 to 499"),
        ({"superwords": 257}, "superwords 257: give 258 to 499"),
        ({"superwords": 1}, "superwords is 1: give 2 or more"),
    ],
)
def test_settings_incompatible_with_superwords_are_refused(changed, reason):
    with pytest.raises(LlmcurateError, match=reason):
        TrainingOptions(**{"sizes": (500,), "superwords": 400} | changed)
