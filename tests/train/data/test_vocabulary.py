"""Special tokens stand behind the vocabulary of the shards where their tokenizer lacks them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE, WordPiece

from llmcurate.base.disk.sealed_json import seal
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from train.data.shards import read_shards
from train.data.vocabulary import vocabulary


def written(
    path: Path, spelled: list[str], special: list[str], *, word_piece: bool = False
) -> Path:
    ids = {token: number for number, token in enumerate(spelled)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="a") if word_piece else BPE(ids, []))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.save(str(path / "tokenizer.json"))
    return path / "tokenizer.json"


def test_what_the_tokenizer_lacks_is_appended_and_written_with_it(tmp_path):
    path = written(tmp_path, ["a", "b", "Ġc"], ["<|endoftext|>"])
    tokens = vocabulary(4, {"<|endoftext|>": 3}, path, ("mask", "sep"))
    assert tokens.special == {"mask": 4, "sep": 5} and tokens.size == 6
    assert tokens.plain.tolist() == [0, 1, 2]
    (tmp_path / "out.json").write_bytes(tokens.written() or b"")
    out = load_tokenizer(tmp_path / "out.json")
    assert out.token_to_id("[MASK]") == 4 and out.token_to_id("[SEP]") == 5
    assert out.encode("ab").ids == load_tokenizer(path).encode("ab").ids


def test_what_the_tokenizer_has_is_used(tmp_path):
    path = written(tmp_path, ["a", "b"], ["</s>", "<mask>"])
    tokens = vocabulary(4, {"</s>": 2}, path, ("mask", "sep"))
    assert tokens.special == {"mask": 3, "sep": 2} and tokens.size == 4
    assert tokens.written() == path.read_bytes()


def test_without_a_tokenizer_new_ids_follow_the_vocabulary():
    tokens = vocabulary(10, {}, None, ("mask",))
    assert tokens.special == {"mask": 10} and tokens.size == 11
    assert tokens.written() is None and tokens.begins_word.all()


@pytest.mark.parametrize(
    ("spelled", "word_piece", "begins"),
    [
        (["a", "Ġb", "▁c", "d", "Ċ"], False, [False, True, True, False, True]),
        (["a", "##b", "c"], True, [True, False, True]),
    ],
)
def test_words_begin_where_the_kind_of_tokenizer_marks_them(tmp_path, spelled, word_piece, begins):
    path = written(tmp_path, spelled, [], word_piece=word_piece)
    tokens = vocabulary(len(spelled), {}, path, ())
    assert tokens.begins_word.tolist() == begins


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("vocab_size", 2**40, "vocab_size 1099511627776 does not fit"),
        ("vocab_size", 0, "vocab_size 0"),
        ("special_ids", {"<|endoftext|>": 10**9}, r"special_ids: <\|endoftext\|> 1000000000 of"),
        ("special_ids", {"<|endoftext|>": -1}, r"special_ids: <\|endoftext\|> -1 of"),
    ],
)
def test_numbers_of_a_manifest_size_nothing_that_its_files_do_not(
    shard_folder, tmp_path, key, value, message
):
    folder = shutil.copytree(shard_folder, tmp_path / "shards")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest.pop("checksum", None)
    (folder / "manifest.json").write_text(json.dumps(seal({**manifest, key: value})))
    with pytest.raises(LlmcurateError, match=rf"manifest\.json: {message}"):
        read_shards(folder)
