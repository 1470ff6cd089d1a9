"""Byte-level BPE that makes characters first: no token ends within one, ids are the library's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.tokenize_kit.sentencepiece_models import HARD, LINES
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.formats.tokenizer_json import from_letters, load_tokenizer
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.tokenizer import Tokenizer

TEXTS = [*LINES, "я 漢字 😀😀 กี่ กี่ กี่"] * 9


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, train_tokenizer(TEXTS, folder, vocab=1500, character_coverage=0.999)


def test_no_token_splits_a_character_that_was_made_first(trained):
    folder, card = trained
    library = load_tokenizer(folder / "tokenizer.json")
    tokens = [from_letters(t) for t in library.get_vocab(with_added_tokens=False) if t[:2] != "<|"]
    assert card["characters"] > 10 and card["lossless"] and card["vocab"] > 330
    thai = [raw for raw in tokens if len(raw) > 3 and "ท".encode()[:2] in raw]
    assert "ที่".encode() in thai
    for raw in thai:
        raw.decode()  # raises for a part of a character


def test_any_text_comes_back_and_has_the_ids_of_the_library(trained):
    folder, _ = trained
    library, tokenizer = load_tokenizer(folder / "tokenizer.json"), Tokenizer(folder)
    assert Encoder(library).reason is None

    @settings(max_examples=80, deadline=None)
    @given(HARD)
    def check(text):
        ids = tokenizer.encode(text)
        assert ids == library.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == text

    check()


def test_a_smaller_vocabulary_is_the_one_that_its_size_alone_gives(tmp_path):
    from tokenize_kit.learn.options import TrainingOptions
    from tokenize_kit.learn.training import train_tokenizers

    rest = {"space_runs": 4, "pad_to": 8, "character_coverage": 0.9}
    train_tokenizers(TEXTS, tmp_path, TrainingOptions(sizes=(440, 520), **rest))
    for size in (440, 520):
        train_tokenizer(TEXTS, tmp_path / "alone", vocab=size, **rest)
        alone = (tmp_path / "alone" / "tokenizer.json").read_bytes()
        assert alone == (tmp_path / str(size) / "tokenizer.json").read_bytes()
