from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.judge.compare import HARD_TEXTS
from tokenize_kit.learn.training import train_tokenizer

ROOT = Path(__file__).resolve().parents[3]
WORDS = [
    "low lower lowest new newer newest wide wider widest, 1234 times.\n" * 20,
    "ภาษาไทย ครับ\n" * 9,
]


@pytest.fixture(scope="module", params=["bpe", "char-bpe", "unigram"])
def trained(request, tmp_path_factory):
    """A tokenizer of each kind, trained on the little corpus above."""
    out = tmp_path_factory.mktemp(request.param)
    vocab = {"bpe": 320, "char-bpe": 340, "unigram": 420}[request.param]
    card = train_tokenizer(WORDS, out, model=request.param, vocab=vocab)
    return load_tokenizer(out / "tokenizer.json"), card, out


@pytest.mark.parametrize("text", HARD_TEXTS, ids=range(len(HARD_TEXTS)))
def test_hard_texts_round_trip_exactly(trained, text):
    tokenizer = trained[0]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_any_text_round_trips_exactly(trained, text):
    tokenizer = trained[0]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_spelling_of_a_special_token_stays_text(trained):
    tokenizer, card, _ = trained
    ids = tokenizer.encode("a<|endoftext|>b").ids
    assert card.special_tokens["<|endoftext|>"] not in ids
    assert tokenizer.decode(ids) == "a<|endoftext|>b"


def test_digits_stand_alone(trained):
    tokenizer = trained[0]
    pieces = [tokenizer.decode([index]) for index in tokenizer.encode("in 1234 times").ids]
    assert all(len(piece.strip()) == 1 for piece in pieces if any(c.isdigit() for c in piece))


def test_the_card_counts_what_was_read(trained):
    _, card, out = trained
    assert card.documents == len(WORDS)
    assert card.bytes == sum(len(text.encode()) for text in WORDS)
    assert card.json() == json.loads((out / "tokenizer_card.json").read_bytes())
    assert not list(out.glob(".*"))


def test_fewer_tokens_than_asked_is_a_warning(tmp_path):
    card = train_tokenizer(["abab " * 10], tmp_path, vocab=5000)
    assert card.vocab < 300 and any("instead of 5000" in line for line in card.warnings)


@pytest.mark.parametrize("model", ["bpe", "char-bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("texts", [[], [""]])
def test_an_empty_corpus_is_an_error(tmp_path, model, texts):
    with pytest.raises(LlmcurateError, match="empty"):
        train_tokenizer(texts, tmp_path, model=model, vocab=1000)
    assert not (tmp_path / "tokenizer.json").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"vocab": 100},
        {"model": "wordlevel"},
        {"digits": "pairs"},
        {"special_tokens": ("<|pad|>", "<|pad|>")},
    ],
)
def test_wrong_settings_are_named(tmp_path, wrong):
    with pytest.raises(LlmcurateError) as caught:
        train_tokenizer(["text"], tmp_path, **wrong)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


@pytest.mark.parametrize("model", ["bpe", "char-bpe", "wordpiece", "unigram"])
def test_text_that_is_not_unicode_is_named(tmp_path, model):
    with pytest.raises(LlmcurateError, match="document 2: not Unicode"):
        train_tokenizer(["text", "\ud800"], tmp_path, model=model, vocab=1000)
    assert not list(tmp_path.iterdir())


def test_marks_stay_with_their_letters():
    from tokenizers import Regex, pre_tokenizers

    from tests.tokenize_kit.byte_bpe import split_pattern

    split = pre_tokenizers.Split(Regex(split_pattern("single")), behavior="isolated")
    pieces = [piece for piece, _ in split.pre_tokenize_str("ที่นี่ हिन्दी don't")]
    assert pieces == ["ที่นี่", " हिन्दी", " don't"]


def test_unigram_keeps_text_that_sentencepiece_would_skip(tmp_path):
    """Lines over 4192 bytes, and lines with NUL or U+2585, are dropped by its trainer."""
    text = "ก" * 3000 + "\x00zebra\u2585zebra " * 50
    card = train_tokenizer([text], tmp_path, model="unigram", vocab=420)
    tokens = load_tokenizer(tmp_path / "tokenizer.json").encode("zebra ก").tokens
    assert tokens == ["zebra", " ", "ก"] or tokens == ["zebra", " ก"]
    assert card.bytes == len(text.encode())


def test_a_small_unigram_vocabulary_spells_rare_characters_in_bytes(tmp_path):
    texts = ["".join(map(chr, range(0x4E00, 0x5800))) * 2]
    card = train_tokenizer(texts, tmp_path, model="unigram", vocab=500)
    assert card.character_coverage < 0.5 and "spelled in bytes" in card.warnings[0]
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.decode(tokenizer.encode(texts[0]).ids) == texts[0]


@pytest.mark.parametrize(
    ("share", "vocab"), [pytest.param(1, 6000, marks=pytest.mark.slow), (4, 3000)]
)
def test_unigram_ids_equal_sentencepiece_on_real_texts(real_texts, tmp_path, share, vocab):
    import sentencepiece

    card = train_tokenizer(real_texts[::share], tmp_path, model="unigram", vocab=vocab)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    assert card.vocab == theirs.get_piece_size() == ours.get_vocab_size()
    different = [
        text[:40]
        for text in real_texts
        if "\u2581" not in text and theirs.encode(text) != ours.encode(text).ids
    ]
    assert different == []


def test_every_process_and_thread_count_gives_the_same_bytes(real_texts, tmp_path):
    """This process, with one thread, and another with two and other hashes of strings."""
    models = ["bpe", "unigram", "char-bpe", "wordpiece"]
    corpus = tmp_path / "texts.json"
    corpus.write_text(json.dumps(real_texts[::16]))
    code = """
import json, pathlib, sys
from tokenize_kit.learn.training import train_tokenizer
texts = json.load(open(sys.argv[1]))
for name in sys.argv[3:]:
    train_tokenizer(texts, pathlib.Path(sys.argv[2]) / name, model=name, vocab=1000)
"""
    for name in models:
        train_tokenizer(real_texts[::16], tmp_path / "here" / name, model=name, vocab=1000)
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "RAYON_NUM_THREADS": "2"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", code, str(corpus), str(tmp_path / "there"), *models]
    subprocess.run(command, check=True, env=environment)
    files = []
    for out in (tmp_path / "here", tmp_path / "there"):
        paths = sorted(path for path in out.rglob("*") if path.is_file())
        files.append({str(path.relative_to(out)): path.read_bytes() for path in paths})
    assert files[0] == files[1] and len(files[0]) >= 4 * len(models)
