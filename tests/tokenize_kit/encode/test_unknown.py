"""The model says which token is the unknown one: text may give it, and no other special token."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from llmcurate.base.errors import RunFailed
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import pack
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.judge.tally import Tally, Texts
from tokenize_kit.shards.writer import Layout, encode_shards

SPECIAL = ("<oov>", "<unk-like>", "</s>")


def saved(path: Path, model: models.Model) -> Path:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    tokenizer.save(str(path / "tokenizer.json"))
    return path / "tokenizer.json"


NAMES = [*SPECIAL, "a", "b"]
IDS = {name: number for number, name in enumerate(NAMES)}
MODELS = {
    "words": models.WordLevel(IDS, unk_token="<oov>"),
    "pieces": models.WordPiece(IDS, unk_token="<oov>"),
    "unigram": models.Unigram([(name, 0.0) for name in NAMES], unk_id=0),
}


@pytest.mark.parametrize("kind", MODELS)
def test_only_the_unknown_token_of_the_model_is_allowed(kind: str, tmp_path: Path) -> None:
    file = saved(tmp_path, MODELS[kind])
    vocabulary = open_vocabulary(file)
    ids, _ = vocabulary.encode(*pack([b"a ? b"]))
    assert ids.tolist() == [3, 0, 4]
    assert vocabulary.forbidden.tolist() == [False, True, True, False, False]
    assert open_candidate(file).unknown == 0


def test_an_unknown_token_that_ends_texts_is_not_allowed(tmp_path: Path) -> None:
    file = saved(tmp_path, models.WordLevel(IDS, unk_token="</s>"))
    assert open_vocabulary(file).forbidden.tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("text", ["h <unk><unk> x", "h<unk>q<unk>h", "<unk> <unk><unk> q"])
def test_spelled_unknown_tokens_are_joined_as_in_the_library(text: str) -> None:
    pieces = [("<unk>", -1.0), ("\u2581", -2.0), ("\u2581x", -3.0), ("h", -3.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    encoder = Encoder(tokenizer)
    assert encoder.reason is None
    assert encoder.encode(*pack([text.encode()]))[0].tolist() == tokenizer.encode(text).ids


def test_a_manifest_counts_unknown_tokens(batch_of, tmp_path: Path) -> None:
    file = saved(tmp_path, models.WordLevel(IDS, unk_token="<oov>"))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    layout = Layout(eos_token="</s>")
    manifest = encode_shards([batch_of(("1", "a ? b"))], file, tmp_path / "one", layout)
    assert manifest["unknown_tokens"] == 1
    Tokenizer.from_file(str(tmp_path / "one" / "tokenizer.json"))  # without the byte order mark
    manifest = encode_shards([batch_of(("1", "a b"))], file, tmp_path / "two", layout)
    assert "unknown_tokens" not in manifest


@pytest.mark.parametrize("form", [None, normalizers.Lowercase()])
def test_a_manifest_counts_characters_that_a_model_leaves_out(
    batch_of, tmp_path: Path, form: normalizers.Normalizer | None
) -> None:
    file = saved(tmp_path, models.BPE(IDS, []))
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.normalizer = form
    tokenizer.save(str(file))
    texts = batch_of(("1", "a b? a"), ("2", "\u0e01 A a"))
    manifest = encode_shards([texts], file, tmp_path / "out", Layout(eos_token="</s>"))
    left_out, tokens = (2, 7) if form else (3, 6)
    assert (manifest["left_out"], manifest["tokens"]) == (left_out, tokens)


@pytest.mark.parametrize(
    "letters, cutter",
    [
        ("ab\u2581", pre_tokenizers.Metaspace()),
        ("ab\u0120\u00e2\u0122", pre_tokenizers.ByteLevel()),
    ],
)
def test_left_out_characters_are_counted_beside_signs_for_spaces_and_bytes(
    letters: str, cutter: pre_tokenizers.PreTokenizer, tmp_path: Path
) -> None:
    tokenizer = Tokenizer(models.BPE({letter: k for k, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = cutter
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tally = Tally(open_candidate(tmp_path / "tokenizer.json"))
    tally.add(Texts.of(*pack(["a b \u2014 \u0e01 ab\u2014".encode(), b"a ab"])))
    figures = tally.result()
    assert (figures["left_out"], figures["unknown"]) == (3, 0)
    assert figures["unknown_share"] == 3 / (figures["tokens"] + 3)


def test_a_text_that_a_model_cannot_spell_is_named_with_the_file(batch_of, tmp_path: Path) -> None:
    file = saved(tmp_path, models.Unigram([(name, 0.0) for name in NAMES]))
    documents = [batch_of(("1", "a"), ("2", "a ?"))]
    with pytest.raises(RunFailed, match=r"tokenizer\.json: .* 'a \?': it has no token for a"):
        encode_shards(documents, file, tmp_path / "out", Layout(eos_token="</s>"))
