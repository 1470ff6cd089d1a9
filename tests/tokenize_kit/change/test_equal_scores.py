"""SentencePiece's BPE with pieces of equal score, as Llama's and Mistral's runs of spaces have."""

from __future__ import annotations

import random

import pytest
import sentencepiece

from tests.parameters import few
from tokenize_kit.change.convert import convert
from tokenize_kit.change.original import open_source
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.formats.forms import BYTE, CONTROL, NORMAL, UNKNOWN, CannotHold, Pieces
from tokenize_kit.formats.sentencepiece_model import write_form
from tokenize_kit.lab.extend import extend
from tokenize_kit.tokenizer import Tokenizer

FIRST = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
BYTES = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
RUNS = [2, 4, 8, 5, 16, 6, 12, 13, 10, 14, 3, 9, 7, 11]  # Mistral 7B v0.1, in order of ids
WORDS = ["th", "the", "▁the", "▁t", "in", "ing", "▁a"]


def with_runs() -> Pieces:
    runs = [("▁" * size, -1e9, NORMAL) for size in RUNS]
    words = [(text, -float(rank), NORMAL) for rank, text in enumerate(WORDS)]
    letters = [(letter, -1e4 - rank, NORMAL) for rank, letter in enumerate("▁theing\tax\n")]
    return Pieces(
        "bpe", (*FIRST, *BYTES, *runs, *words, *letters), squeeze=False, byte_fallback=True
    )


def drawn_form(seed: int) -> Pieces:
    draw = random.Random(seed)
    letters = "abc▁"[: draw.randint(2, 4)]
    pieces = list(letters)
    for _ in range(draw.randint(3, 14)):
        piece = draw.choice(pieces) + draw.choice(pieces)
        if len(piece) < 9 and piece not in pieces:
            pieces.append(piece)
    draw.shuffle(pieces)
    scores = draw.choice([1, 2, 4])
    rows = [(piece, -float(draw.randint(1, scores)), NORMAL) for piece in pieces]
    prefix = draw.random() < 0.5
    return Pieces("bpe", (*FIRST, *BYTES, *rows), prefix=prefix, squeeze=False, byte_fallback=True)


def written(form, folder):
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.model").write_bytes(write_form(form))
    library = sentencepiece.SentencePieceProcessor(model_proto=write_form(form))
    return folder / "tokenizer.model", lambda text: library.encode(text)


def test_runs_of_spaces_become_those_of_sentencepiece(tmp_path):
    file, ids_of = written(with_runs(), tmp_path / "model")
    convert(file, tmp_path / "out", "tokenizer.json")
    tokenizer = Tokenizer(tmp_path / "out")
    for size in range(1, 120):
        for before in ("", "x", "\n", "the"):
            for text in (f"{before}{' ' * size}", f"{before}{' ' * size}thing"):
                assert tokenizer.encode(text) == ids_of(text)


@pytest.mark.parametrize("to", ["tokenizer.json", "gguf"])
def test_the_model_comes_back_from_other_formats(tmp_path, to):
    if to == "gguf":
        pytest.importorskip("gguf")
    file, ids_of = written(with_runs(), tmp_path / "model")
    convert(file, tmp_path / "there", to)
    convert(tmp_path / "there", tmp_path / "back", "sentencepiece")
    tokenizer = Tokenizer(tmp_path / "back")
    assert all(tokenizer.encode(" " * n + "the") == ids_of(" " * n + "the") for n in range(60))


def test_the_converted_tokenizer_can_be_extended(tmp_path):
    file, ids_of = written(with_runs(), tmp_path / "model")
    convert(file, tmp_path / "out", "tokenizer.json")
    texts = ["gang hang  gang the hang"] * 20
    card = extend(tmp_path / "out", [pack_texts(texts)], tmp_path / "more", 4)
    assert card.new_tokens == 4
    assert Tokenizer(tmp_path / "more").encode("the   thing") == ids_of("the   thing")


@pytest.mark.parametrize("seed", few(map(str, range(120)), *map(str, range(24))))
def test_what_ranks_of_merges_cannot_express_is_found_and_refused(tmp_path, seed):
    """Either the ids of SentencePiece on other texts than those of the verification, or a refusal
    that names a text whose ids differ."""
    file, ids_of = written(drawn_form(int(seed)), tmp_path / "model")
    letters = [text for text, _, kind in open_source(file).form.pieces if kind == NORMAL]
    letters = sorted(set("".join(letters).replace("▁", " ")))
    try:
        convert(file, tmp_path / "out", "tokenizer.json")
    except CannotHold as error:
        assert "its ids would differ: in" in str(error)
        return
    tokenizer, draw = Tokenizer(tmp_path / "out"), random.Random(seed)
    for _ in range(300):
        text = "".join(draw.choices(letters, k=draw.randint(1, 30)))
        assert tokenizer.encode(text) == ids_of(text)
