"""The model says which token is the unknown one: text may give it, and no other special token."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from tokenize_kit.encode.parts import pack
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.judge.candidate import open_candidate

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
