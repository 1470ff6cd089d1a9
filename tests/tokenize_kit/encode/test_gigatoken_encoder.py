"""gigatoken beside `tokenizers`: the same ids for all texts that it gets, and ours for all else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, trainers

from tokenize_kit.encode import gigatoken_encoder
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.gigatoken_encoder import GigatokenEncoder, latin_table, trusted
from tokenize_kit.encode.normalize import ODD
from tokenize_kit.encode.parts import pack
from tokenize_kit.formats.tokenizer_json import LETTERS, Unsupported, cut_to_bytes
from tokenize_kit.pattern.named import pattern_with

OPTIONAL = r"[^\r\n\p{L}\p{N}]?"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CASELESS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PATTERNS = {
    "gpt2": pattern_with("gpt2", "free").parts,
    "o200k": pattern_with("o200k", "triples").parts,
    "o200k, single digits": pattern_with("o200k", "single").parts,
    "llama3": pattern_with("llama3", "triples").parts,
    "qwen2": pattern_with("qwen2", "single").parts,
    "qwen3.5": (
        rf"{CASELESS}|{OPTIONAL}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
        + SPACES,
    ),
    "nemotron": (
        rf"{OPTIONAL}[{UPPER}]*[{LOWER}]+|{OPTIONAL}[{UPPER}]+[{LOWER}]*|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES,
    ),
}
LEARNED = (
    "The cat's naïve café — it costs 12.50 €, doesn't it? WE'LL see… HTTPServer(x_1 == 2024);\n\n"
    "\tfor (i = 0; i < 100; i++) { print('ok'); }  // “quoted” 🙂🙂 Việt Nam\r\n"
    "ภาษาไทย ราคา ๑๒ บาท 漢字かな交じり文 русский текст <|end|>   \n"
)
LATIN = st.text(st.characters(codec="utf-8", max_codepoint=0x24F), max_size=30)
WORDS = (
    "the, cat,'s,'LL,’s,don't,   ,123, 4567,2²,é,e\u0301,ÀÉ,Việt,—,…,🙂,❤️,ภาษาไทย,漢字,русский,٣٤,_"
    ",//,<|end|>,\r\n,\n\n ,\t,\u00a0,\u2028,\u0085,\U0010ffff,\u088f,\ua7ce"
)
PIECES = st.sampled_from(WORDS.split(","))
TEXTS = st.lists(
    st.one_of(st.lists(PIECES, max_size=12).map("".join), LATIN, st.text(max_size=12)), max_size=8
)


def made(parts, *, whole=False, form=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole))
    cut_to_bytes(tokenizer, parts)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|end|>"],
        initial_alphabet=LETTERS,
        show_progress=False,
    )
    tokenizer.train_from_iterator([LEARNED, LEARNED.upper()] * 20, trainer)
    tokenizer.encode_special_tokens = True
    tokenizer.normalizer = form
    return tokenizer


def ids_of(encode, texts):
    ids, sizes = encode(*pack([text.encode() for text in texts]))
    assert sizes.dtype == np.int64 and ids.dtype == np.uint32
    return [row.tolist() for row in np.split(ids, np.cumsum(sizes))[:-1]]


def expected(tokenizer, texts):
    return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("whole", [False, True], ids=["merges", "whole-words"])
def test_ids_are_those_of_tokenizers(name, whole):
    tokenizer = made(PATTERNS[name], whole=whole, form=normalizers.NFC() if whole else None)
    encoder = GigatokenEncoder(Encoder(tokenizer))

    @settings(max_examples=60)
    @given(TEXTS)
    @example([])
    @example(["", "", "a", ""])
    @example(["a\n ", "a \n  b", "x\r\n\r\n y", "12345 67", "<|end|>", "a" * 3000, " " * 300])
    def check(texts):
        assert ids_of(encoder.encode, texts) == expected(tokenizer, texts)

    check()


@pytest.mark.parametrize("name", PATTERNS)
def test_each_character_that_it_gets_is_in_the_same_piece_as_by_our_kernels(name):
    # A letter, a digit, a space or a sign has a merge with any first and any last byte.
    vocab = {letter: byte for byte, letter in enumerate(LETTERS)}
    sides = [LETTERS[ord(side)] for side in "aA1 !\n'"]
    pairs = dict.fromkeys(
        [(side, byte) for side in sides for byte in LETTERS]
        + [(byte, side) for side in sides for byte in LETTERS]
    )
    merges = [pair for pair in pairs if not "".join(pair).isdecimal()]
    vocab |= {word: 256 + k for k, word in enumerate(map("".join, merges))}
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    cut_to_bytes(tokenizer, PATTERNS[name])
    ours = Encoder(tokenizer)
    theirs = GigatokenEncoder(ours)
    points = np.flatnonzero(latin_table() != ODD)
    assert 0x41 in points and 0x1EC7 in points and 0x2019 in points and 0xE01 not in points
    for before in "aA1 !\n'":
        for after in "a1 !\ns":
            texts = pack([f"{before}{chr(point)}{after}".encode() for point in points])
            assert all(map(np.array_equal, theirs.encode(*texts), ours.encode(*texts)))


@given(st.lists(st.text("ab -", max_size=40), min_size=1, max_size=6))
@example(["aaaa aaaaa", "ab" * 9, "baaab"])
def test_merges_that_give_the_same_token_are_ranked_as_listed(texts):
    merges = [
        ("a", "b"),
        ("a", "a"),
        ("b", "a"),
        ("aa", "a"),
        ("a", "aa"),
        ("b", "aa"),
        ("ba", "a"),
    ]
    merges += [("aa", "aa"), ("aaa", "a"), ("a", "aaa"), ("ab", "a"), ("a", "ba"), ("Ġ", "a")]
    vocab = {letter: byte for byte, letter in enumerate(LETTERS)}
    for pair in merges:
        vocab.setdefault("".join(pair), len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    cut_to_bytes(tokenizer, PATTERNS["gpt2"])
    encoder = GigatokenEncoder(Encoder(tokenizer))
    assert ids_of(encoder.encode, texts) == expected(tokenizer, texts)


def test_threads_share_it_and_batches_do_not_matter():
    tokenizer = made(PATTERNS["o200k"])
    encoder = GigatokenEncoder(Encoder(tokenizer))
    texts = [f"the cat {k} doesn't cost {k * 7919} € ภาษา"[: 20 + k % 17] for k in range(400)]
    right = expected(tokenizer, texts)
    with ThreadPoolExecutor(3) as pool:
        parts = pool.map(lambda k: ids_of(encoder.encode, texts[k : k + 7]), range(0, 400, 7))
        assert [row for part in parts for row in part] == right


def test_a_tokenizer_whose_caches_have_grown_is_loaded_anew(monkeypatch):
    tokenizer = made(PATTERNS["o200k"])
    encoder = GigatokenEncoder(Encoder(tokenizer))
    monkeypatch.setattr(gigatoken_encoder, "LEAST", 0)
    monkeypatch.setattr(gigatoken_encoder, "GROWTH", -(1 << 40))
    texts = ["the cat", "doesn't"]
    for _ in range(3):
        assert ids_of(encoder.encode, texts) == expected(tokenizer, texts)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((rf"{CASELESS}|{OPTIONAL}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
          r"|\s*[\r\n]|\s+(?!\S)|\s+",), "another way"),
        (pattern_with("whitespace", "free").parts, "Unknown pre_tokenizer"),
        (pattern_with("o200k", "free").parts, "Unknown pre_tokenizer"),
    ],
    ids=["cl100k", "whitespace", "digits"],
)  # fmt: skip
def test_other_patterns_are_left_to_our_kernels(parts, reason):
    with pytest.raises(Unsupported, match=reason):
        GigatokenEncoder(Encoder(made(parts)))


def test_single_digits_need_a_vocabulary_without_tokens_of_two_digits():
    tokenizer = made(PATTERNS["o200k"])  # learned "12"
    assert any(word.isdecimal() and len(word) > 1 for word in tokenizer.get_vocab())
    cut_to_bytes(tokenizer, PATTERNS["o200k, single digits"])
    with pytest.raises(Unsupported, match="single digits"):
        GigatokenEncoder(Encoder(tokenizer))


def test_it_is_trusted_only_if_the_sample_has_the_same_ids():
    tokenizer = made(PATTERNS["o200k"])
    sample = [pack([b"the cat", "ภาษา".encode()])]
    encode, name = trusted(Encoder(tokenizer), sample)
    assert encode is not None and name.startswith("gigatoken 0.10.")

    class Other(Encoder):
        def encode(self, data, offsets):
            ids, sizes = super().encode(data, offsets)
            return ids[::-1].copy(), sizes

    encode, name = trusted(Other(tokenizer), sample)
    assert encode is None and "other ids for a sample" in name


def test_without_it_or_with_another_release_our_kernels_encode(monkeypatch):
    ours = Encoder(made(PATTERNS["o200k"]))

    def missing(name):
        raise PackageNotFoundError(name)

    for version, reason in ((missing, "not installed"), (lambda name: "0.11.2", "it is 0.11.2")):
        monkeypatch.setattr(gigatoken_encoder, "version", version)
        encode, name = trusted(ours, [])
        assert encode is None and reason in name
    assert trusted(None, [])[0] is None
