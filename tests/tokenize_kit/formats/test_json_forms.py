"""tokenizer.json of SentencePiece's kind by our kernels: the ids of `tokenizers`, for any text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers
from tokenizers.pre_tokenizers import Metaspace, Sequence, Split, Whitespace, WhitespaceSplit

from tests.tokenize_kit.sentencepiece_models import HARD, LINES, ODD, encoded, trained
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.normalize import find_odd
from tokenize_kit.formats.forms import CONTROL, NORMAL, UNKNOWN
from tokenize_kit.formats.sentencepiece_model import read_model
from tokenize_kit.learn.training import train_tokenizer


def model_of(kind, byte_fallback):
    return read_model(trained(kind, byte_fallback=byte_fallback))


def unigram(byte_fallback=False):
    """As transformers' converters write it, with the precompiled normaliser beside it."""
    model = model_of("unigram", byte_fallback)
    vocab = [
        (text, -1e6 if byte_fallback and kind != NORMAL else score)
        for text, score, kind in model.pieces
    ]
    tokenizer = Tokenizer(models.Unigram(vocab, model.unknown, byte_fallback))
    control = [text for text, _, kind in model.pieces if kind in (CONTROL, UNKNOWN)]
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in control])
    return tokenizer, normalizers.Precompiled(model.charsmap)


def byte_pairs(byte_fallback=True, fuse_unk=True):
    """Every two pieces that spell a third, those of the best score first."""
    model = model_of("bpe", byte_fallback)
    vocab = {text: k for k, (text, _, _) in enumerate(model.pieces)}
    best = sorted((p for p in model.pieces if p[2] == NORMAL), key=lambda piece: -piece[1])
    merges = [
        (text[:cut], text[cut:])
        for text, _, _ in best
        for cut in range(1, len(text))
        if text[:cut] in vocab and text[cut:] in vocab
    ]
    return Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=fuse_unk)
    )


def runs(content):
    return normalizers.Replace(Regex(" {2,}"), content)


def t5(strip=True, content="\u2581"):
    tokenizer, precompiled = unigram()
    tokenizer.normalizer = normalizers.Sequence(
        [precompiled, normalizers.Strip(left=False, right=True), runs(content)]
    )
    tokenizer.pre_tokenizer = Metaspace()
    return tokenizer


def xlmr():
    tokenizer, precompiled = unigram()
    tokenizer.normalizer = precompiled
    tokenizer.pre_tokenizer = Sequence([WhitespaceSplit(), Metaspace()])
    return tokenizer


def unigram_with(byte_fallback=False, precompiled=True, **space):
    tokenizer, normalizer = unigram(byte_fallback)
    if precompiled:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = Metaspace(**space)
    return tokenizer


def llama(**settings):
    tokenizer = byte_pairs(**settings)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    return tokenizer


def gemma():
    tokenizer = byte_pairs()
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = Split(" ", "merged_with_previous")
    return tokenizer


def llama_later():
    tokenizer = byte_pairs()
    tokenizer.pre_tokenizer = Metaspace(prepend_scheme="first", split=False)
    return tokenizer


TOKENIZERS = {
    "t5": t5,
    "t5-one-space": lambda: t5(content=" "),
    "xlm-r": xlmr,
    "metaspace": unigram_with,
    "metaspace-bytes": lambda: unigram_with(True, False),
    "metaspace-whole": lambda: unigram_with(split=False, prepend_scheme="never"),
    "llama": llama,
    "llama-without-bytes": lambda: llama(byte_fallback=False),
    "llama-unknown-apart": lambda: llama(byte_fallback=False, fuse_unk=False),
    "llama-later": llama_later,
    "gemma": gemma,
}


def by_library(tokenizer, texts):
    tokenizer.encode_special_tokens = True
    return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def check_any_text(tokenizer, examples):
    encoder = Encoder(tokenizer)
    assert encoder.reason is None
    tokenizer.encode_special_tokens = True

    @settings(max_examples=examples, deadline=None)
    @given(st.lists(HARD, min_size=1, max_size=5))
    def check(texts):
        assert encoded(encoder, texts) == by_library(tokenizer, texts)

    check()
    texts = [
        "",
        *LINES,
        "",
        ODD,
        " ",
        "  a",
        " a ",
        "\u2581",
        "a\u2581b",
        *(LINES[0] * 300).split("t"),
    ]
    assert encoded(encoder, texts) == by_library(tokenizer, texts)
    return encoder


@pytest.mark.parametrize("name", TOKENIZERS)
def test_any_text_has_the_ids_of_the_library(name):
    check_any_text(TOKENIZERS[name](), 60)


def test_our_own_unigram_has_the_ids_of_the_library(tmp_path):
    train_tokenizer(LINES * 9, tmp_path, vocab=420, model="unigram")
    check_any_text(Tokenizer.from_file(str(tmp_path / "tokenizer.json")), 60)


def test_common_texts_are_not_left_to_the_library():
    """Else T5 and XLM-R would be encoded by it throughout: accents, Thai with its marks, Hindi."""
    encoder = Encoder(t5())
    texts = ["The café, naïve.\nNext", "กินข้าวที่บ้าน น้ำ", "我们，你好", "हिन्दी भाषा", "한국어 😀"]
    assert not find_odd(*pack_texts(texts), encoder._table, True).any()


def test_real_texts_have_the_ids_of_the_library(real_texts):
    part = [text[:2000] for text in real_texts[::9]]
    for build in (t5, llama):
        tokenizer = build()
        encoder = Encoder(tokenizer)
        assert encoder.reason is None
        assert encoded(encoder, part) == by_library(tokenizer, part)


def _with(build, **parts):
    def changed():
        tokenizer = build()
        for name, value in parts.items():
            setattr(tokenizer, name, value)
        return tokenizer

    return changed


def _bytes_missing():
    tokenizer = Tokenizer(models.BPE({"a": 0}, [], byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    return tokenizer


@pytest.mark.parametrize(
    "build, message",
    [
        (
            _with(llama, pre_tokenizer=Whitespace()),
            "Prepend, Replace, Whitespace",
        ),
        (_with(t5, normalizer=normalizers.Lowercase()), "Lowercase"),
        (_bytes_missing, "byte fallback without all 256 bytes"),
        (_with(t5, pre_tokenizer=None), "the steps"),
    ],
    ids=["pre-tokeniser", "normaliser", "bytes", "no-words"],
)
def test_other_forms_go_to_the_library_and_are_named(build, message):
    tokenizer = build()
    encoder = Encoder(tokenizer)
    assert message in (encoder.reason or "")
    texts = ["a the cat", "", "ab"]
    assert encoded(encoder, texts) == by_library(tokenizer, texts)
