"""Decoders of a tokenizer.json: the text of `tokenizers`, at once and in parts."""

from __future__ import annotations

import json
import random

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from tests.tokenize_kit.byte_bpe import train_bpe
from tokenize_kit.change.bpe import pack_texts
from tokenize_kit.change.convert import convert
from tokenize_kit.formats.forms import CannotHold
from tokenize_kit.formats.tokenizer_json import LETTERS, to_letters
from tokenize_kit.lab.prune import prune
from tokenize_kit.tokenizer import Tokenizer as Opened

WORDS = [" the", " a", "ing", "é", "😀", "  ", "\n", "don", "n't", " .", "a b"]
BYTES = [*LETTERS, *(word for word in map(to_letters, map(str.encode, WORDS)) if len(word) > 1)]
PIECES = (
    "<unk> <pad> ▁ ▁the a b c ▁▁ . ##s ##ing x</w> y</w> | ' n't é do not ▁. 。 日".split()
    + [" ", "  x", " .", "ab"]
    + [f"<0x{byte:02X}>" for byte in range(256)]
)
Sequence, Fuse, Strip, Replace = decoders.Sequence, decoders.Fuse, decoders.Strip, decoders.Replace
DECODERS = {
    "none": None,
    "ByteLevel": decoders.ByteLevel(),
    "ByteLevel in a Sequence": Sequence([decoders.ByteLevel()]),
    "ByteLevel, then a word replaced": Sequence([decoders.ByteLevel(), Replace("a b", "Q")]),
    "Metaspace": decoders.Metaspace(),
    "Metaspace without prefix": decoders.Metaspace(prepend_scheme="never"),
    "WordPiece": decoders.WordPiece(),
    "WordPiece without cleanup": decoders.WordPiece(cleanup=False),
    "BPEDecoder": decoders.BPEDecoder(),
    "CTC": decoders.CTC(),
    "ByteFallback": decoders.ByteFallback(),
    "Fuse": Fuse(),
    "Llama": Sequence([Replace("▁", " "), decoders.ByteFallback(), Fuse(), Strip(" ", 1, 0)]),
    "Gemma": Sequence([Replace("▁", " "), decoders.ByteFallback(), Fuse()]),
    "a pair replaced in the whole text": Sequence([Fuse(), Replace("ab", "Q")]),
    "spaces made one in the whole text": Sequence([Fuse(), Replace(Regex(" +"), " ")]),
    "WordPiece after Fuse": Sequence([Fuse(), decoders.WordPiece()]),
}


@pytest.mark.parametrize("vocabulary", [BYTES, PIECES], ids=["bytes", "pieces"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_text_and_its_parts_are_those_of_the_library(decoder, vocabulary, tmp_path):
    fallback = vocabulary is PIECES
    vocab = {text: number for number, text in enumerate(dict.fromkeys(vocabulary))}
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab, merges=[], byte_fallback=fallback, unk_token="<unk>" if fallback else None
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if DECODERS[decoder] is not None:
        tokenizer.decoder = DECODERS[decoder]
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    opened, draw = Opened(tmp_path), random.Random(decoder)
    few = list(range(26)) if fallback else list(range(256, len(vocab)))
    for _ in range(120):
        ids = [
            draw.choice(few) if draw.random() < 0.8 else draw.randrange(len(vocab))
            for _ in range(draw.randint(1, 12))
        ]
        expected = tokenizer.decode(ids, skip_special_tokens=False)
        assert opened.decode(ids) == expected


def test_no_ids_are_no_text_whatever_the_decoder(tmp_path):
    """Given no ids, the library's decoders that strip a text panic."""
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.decoder = Sequence([Fuse(), Strip(" ", 1, 1)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert Opened(tmp_path).decode([]) == ""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    texts = iter(["the cat sat on the mat, then that"] * 9)
    return train_bpe(texts, vocab=300, digits="single", special_tokens=["<|endoftext|>"])


def with_decoder(tokenizer, decoder, folder):
    content = json.loads(tokenizer.to_str())
    content["decoder"] = None if decoder is None else json.loads(decoder.__getstate__())
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("name", ["none", "Fuse", "WordPiece", "ByteLevel, then a word replaced"])
def test_a_decoder_that_ranks_cannot_hold_is_named(trained, name, tmp_path):
    decoder = DECODERS[name]
    if name.startswith("ByteLevel"):
        decoder = Sequence([decoders.ByteLevel(), Replace("the", "a")])
    folder = with_decoder(trained, decoder, tmp_path)
    with pytest.raises(CannotHold, match="cannot hold its decoder, which gives"):
        convert(folder, tmp_path / "out", "tiktoken")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["ByteLevel", "ByteLevel in a Sequence"])
def test_a_decoder_of_bytes_is_converted(trained, name, tmp_path):
    folder = with_decoder(trained, DECODERS[name], tmp_path)
    assert convert(folder, tmp_path / "out", "tiktoken").format == "tiktoken"


def test_a_changed_tokenizer_keeps_its_decoder(trained, tmp_path):
    folder = with_decoder(trained, DECODERS["ByteLevel, then a word replaced"], tmp_path)
    prune(folder, lambda: [pack_texts(["the mat"])], tmp_path / "out")
    before, after = (
        json.loads((f / "tokenizer.json").read_text()) for f in (folder, tmp_path / "out")
    )
    assert before["decoder"] == after["decoder"]
