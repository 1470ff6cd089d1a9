"""BPE whose whole words need no merges: what it drops, and both encoders against a plain one."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenize_kit.learn.reference_bpe import cut, merged
from tokenize_kit.change.convert import convert
from tokenize_kit.change.extend import extend
from tokenize_kit.change.prune import prune
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.errors import TokenizerError
from tokenize_kit.formats.forms import ByteBpe, CannotHold
from tokenize_kit.formats.tiktoken import to_ranks
from tokenize_kit.formats.tokenizer_json import load_tokenizer, to_letters
from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.judge.vocabulary import examine_vocabulary
from tokenize_kit.learn.bpe import train_sizes
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.training import train_tokenizer, train_tokenizers
from tokenize_kit.pattern.named import PATTERNS

FEW_LETTERS = st.lists(st.text(st.sampled_from("abc "), max_size=40), min_size=1, max_size=12)
PROSE = [
    "The nation nations national nationality international internationally, of the end\n" * 8,
    "One of the three, by the way: of the 1234 nations in the end; at the end of the day\n\n" * 8,
    "ภาษาไทย ครับ 漢字かな 'tis  a\ttab  in the nationality of the day of the end\r\n" * 8,
]


def learned(texts, size, **changed):
    options = TrainingOptions(sizes=(size,), **changed)
    return train_sizes([(text, 1) for text in texts], options)[0]


def by_hand(tokenizer, texts):
    """Ids: a piece that is a token is that one; all others are merged, the lowest rank first."""
    model = json.loads(tokenizer.to_str())["model"]
    rank = {tuple(pair): number for number, pair in enumerate(model["merges"])}
    ids = []
    for text in texts:
        for piece in cut([text], TrainingOptions().cutting.parts) if text else ():
            symbols = tuple(to_letters(piece.encode()))
            if "".join(symbols) in model["vocab"]:
                symbols = ("".join(symbols),)
            while ranked := [pair for pair in pairwise(symbols) if pair in rank]:
                pair = min(ranked, key=rank.__getitem__)
                symbols = merged(symbols, pair, "".join(pair))
            ids += [model["vocab"][symbol] for symbol in symbols]
    return ids


def ids_of(tokenizer, texts):
    """Ids by our encoder and by `tokenizers`."""
    encoder = Encoder(tokenizer)
    assert encoder.reason is None
    theirs = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return encoder.encode(*pack_texts(texts))[0].tolist(), [n for ids in theirs for n in ids]


@settings(max_examples=60, deadline=None)
@given(FEW_LETTERS, st.integers(258, 275), st.lists(st.text("abc d"), max_size=3))
def test_training_text_has_no_more_tokens_than_with_plain_bpe(texts, size, others):
    plain, fewer = learned(texts, size), learned(texts, size, whole_words=True)
    assert fewer.get_vocab_size() == plain.get_vocab_size()
    ours, theirs = ids_of(fewer, texts)
    assert ours == theirs and len(ours) <= len(ids_of(plain, texts)[0])
    words = sorted({word for text in [*texts, *others] for word in text.split(" ")})
    ours, theirs = ids_of(fewer, words)
    assert ours == theirs == by_hand(fewer, words)


@settings(max_examples=60, deadline=None)
@given(FEW_LETTERS, st.integers(258, 275))
def test_each_token_is_made_by_merges_or_is_a_word_of_the_text(texts, size):
    model = json.loads(learned(texts, size, whole_words=True).to_str())["model"]
    rank = {tuple(pair): number for number, pair in enumerate(model["merges"])}
    words = {to_letters(p.encode()) for p in cut(texts, TrainingOptions().cutting.parts)}
    assert all(pair[0] + pair[1] in model["vocab"] for pair in rank)
    for token in model["vocab"].keys() - words - {"<|endoftext|>"}:
        symbols = tuple(token)
        while ranked := [pair for pair in pairwise(symbols) if pair in rank]:
            pair = min(ranked, key=rank.__getitem__)
            symbols = merged(symbols, pair, "".join(pair))
        assert symbols == (token,)


def test_what_builds_one_word_alone_is_no_token():
    texts = ["wxyz\n" * 9]
    assert "wxyz" not in learned(texts, 258).get_vocab()
    model = json.loads(learned(texts, 258, whole_words=True).to_str())["model"]
    assert "wxyz" in model["vocab"] and not model["merges"] and model["ignore_merges"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, train_tokenizer(PROSE, folder, vocab=330, whole_words=True, space_runs=4)


def test_every_token_is_given_by_some_text_and_bytes_and_special_ones_stay(trained):
    vocabulary = examine_vocabulary(open_candidate(trained[0]))
    assert not vocabulary.unreachable
    vocab = load_tokenizer(trained[0] / "tokenizer.json").get_vocab()
    assert len(vocab) == 330 and vocab["<|endoftext|>"] == 0
    assert all(to_letters(bytes([byte])) in vocab for byte in range(256))


def test_the_card_says_the_algorithm_and_what_llama_cpp_does_without_it(trained, tmp_path):
    card = trained[1]
    assert "whole words" in card["algorithm"] and card["settings"]["whole_words"]
    assert card["gguf_pattern"] is None and "whole words" in card["notes"][0]
    llama = {"whole_words": True, "pattern": "llama3"}
    with_merges = train_tokenizer(PROSE, tmp_path / "a", vocab=330, digits="single", **llama)
    assert "whole words" in with_merges["gguf"]["refused"]
    alike = train_tokenizer(PROSE, tmp_path / "b", vocab=330, **llama)
    assert alike["gguf"]["tokenizer.ggml.pre"] == alike["gguf_pattern"] == "llama-bpe"


def test_each_size_is_what_it_alone_gives_in_any_order_of_texts(tmp_path):
    train_tokenizers(PROSE, tmp_path, TrainingOptions(sizes=(300, 350), whole_words=True))
    train_tokenizer(PROSE[::-1], tmp_path / "alone", vocab=300, whole_words=True)
    files = [tmp_path / name / "tokenizer.json" for name in ("300", "alone")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_it_is_extended_and_pruned_as_other_bpe_is(trained, tmp_path):
    texts = [*PROSE, *[f"by the way, the other thing was named before {k}\n" for k in range(60)]]
    extend(trained[0], [pack_texts(texts)], tmp_path / "more", 10)
    prune(trained[0], lambda: [pack_texts(PROSE)], tmp_path / "less", most=310)
    for name, tokens in (("more", 340), ("less", 310)):
        tokenizer = load_tokenizer(tmp_path / name / "tokenizer.json")
        assert tokenizer.get_vocab_size() == tokens
        assert json.loads(tokenizer.to_str())["model"]["ignore_merges"]
        ours, theirs = ids_of(tokenizer, texts)
        assert ours == theirs and tokenizer.decode(ours) == "".join(texts)


def test_llama_cpp_merges_all_tokens_of_most_patterns(tmp_path):
    train_tokenizer(["wxyz\n" * 9], tmp_path, vocab=258, whole_words=True, pattern="qwen2")
    with pytest.raises(CannotHold, match="some have none"):
        convert(tmp_path, tmp_path / "x.gguf", "gguf")


def test_tiktoken_would_merge_a_whole_word_of_two_tokens_and_leaves_others():
    tokens = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"xyz": 257}
    merges, cut_by = ((b"a", b"b"),), PATTERNS["cl100k"].parts
    assert b"257" in to_ranks(ByteBpe(tokens, merges, cut_by, (), True))
    with pytest.raises(CannotHold, match="tiktoken makes 'abc' of other parts"):
        to_ranks(ByteBpe(tokens | {b"abc": 258}, merges, cut_by, (), True))


def test_real_texts_come_back_from_ids_that_both_encoders_give(real_texts):
    plain, tokenizer = (learned(real_texts, 2000, whole_words=whole) for whole in (False, True))
    ours, theirs = ids_of(tokenizer, real_texts[:40])
    assert ours == theirs and tokenizer.decode(ours) == "".join(real_texts[:40])
    data, offsets = pack_texts(real_texts)
    fewer, more = (len(Encoder(t).encode(data, offsets)[0]) for t in (tokenizer, plain))
    assert fewer < more


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"backend": "tokenizers"}, "whole-words: only for the model bpe and the backend own"),
        ({"model": "unigram"}, "whole-words: only for the model bpe and the backend own"),
        ({"superwords": 400}, "superwords: not with whole-words"),
        ({"parity_by": "lang"}, "parity-by: not with whole-words"),
        ({"dictionary": "words.txt"}, "dictionary: not with whole-words"),
        ({"character_coverage": 0.9}, "character-coverage: not with whole-words"),
        ({"space_token": "<_>"}, "space-token: not with whole-words"),
    ],
)
def test_what_does_not_go_with_whole_words_is_refused(changed, reason):
    with pytest.raises(TokenizerError, match=reason):
        TrainingOptions(**{"sizes": (500,), "whole_words": True} | changed)


def test_a_special_token_that_text_would_give_is_refused():
    tokens = {"special_tokens": ("<|endoftext|>", "<->")}
    assert "<->" in learned(PROSE, 300, **tokens).get_vocab()
    with pytest.raises(TokenizerError, match="'<->': the pattern leaves it whole"):
        learned(PROSE, 300, whole_words=True, **tokens)
