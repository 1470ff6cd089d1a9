"""SentencePiece's model files are read as its own library reads them, and edited in place."""

from __future__ import annotations

import io

import pytest

from tests.tokenize_kit.formats.pieces import with_pieces
from tokenize_kit.formats.forms import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from tokenize_kit.formats.sentencepiece_model import NotAModel, read_model

sentencepiece = pytest.importorskip("sentencepiece")


@pytest.fixture(scope="module")
def raw():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "กินข้าวที่บ้าน"] * 9),
        model_writer=model,
        vocab_size=320,
        byte_fallback=True,
        user_defined_symbols=["<x>"],
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def test_pieces_are_those_of_the_library(raw):
    library = sentencepiece.SentencePieceProcessor(model_proto=raw)
    model = read_model(raw)
    assert [text for text, _, _ in model.pieces] == [
        library.id_to_piece(k) for k in range(len(library))
    ]
    assert [score for _, score, _ in model.pieces] == [
        library.get_score(k) for k in range(len(library))
    ]
    asked = {
        UNKNOWN: library.is_unknown,
        CONTROL: library.is_control,
        UNUSED: library.is_unused,
        BYTE: library.is_byte,
    }
    for kind, is_it in asked.items():
        ids = [k for k, piece in enumerate(model.pieces) if piece[2] == kind]
        assert ids == [k for k in range(len(library)) if is_it(k)]
    assert [text for text, _, kind in model.pieces if kind == USER_DEFINED] == ["<x>"]
    assert (model.kind, model.byte_fallback, model.prefix) == ("unigram", True, True)
    assert (model.squeeze, len(model.charsmap) > 1000) == (False, True)


def test_the_same_pieces_give_the_same_file(raw):
    assert with_pieces(raw, read_model(raw).pieces) == raw


def test_other_pieces_are_all_that_changes(raw):
    model = read_model(raw)
    pieces = [*model.pieces[:-1], ("zebra", -1.5, NORMAL), ("never", 0.0, UNUSED)]
    library = sentencepiece.SentencePieceProcessor(model_proto=with_pieces(raw, pieces))
    assert len(library) == len(model.pieces) + 1
    assert library.get_score(library.piece_to_id("zebra")) == -1.5
    assert library.is_unused(library.piece_to_id("never"))
    assert read_model(with_pieces(raw, pieces)).charsmap == model.charsmap


def test_a_file_cut_short_is_refused_or_read_in_part_but_never_a_crash(raw):
    for size in [0, 1, 2, 5, 40, 1000, len(raw) - 1]:
        with pytest.raises(NotAModel):
            read_model(raw[:size])


@pytest.mark.parametrize(
    "damaged",
    [b"\x00" * 9, b"\xff" * 30, b"\x0a\x03\x0a\x01\xff", b"{}"],
    ids=["nul", "ones", "not-utf8", "json"],
)
def test_other_bytes_are_refused(damaged):
    with pytest.raises(NotAModel):
        read_model(damaged)


@pytest.mark.parametrize("kind", [0, 7, 1 << 31, 1 << 62])
def test_a_piece_of_an_unknown_type_is_refused(raw, kind):
    with pytest.raises(NotAModel, match="a piece of another form"):
        read_model(raw + with_pieces(b"", [("x", 0.0, kind)]))
