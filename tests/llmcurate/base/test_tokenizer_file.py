"""Tokenizer files are loaded alike everywhere, and what stands around a text can be stated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from llmcurate.base.errors import UsageError
from llmcurate.base.roles import Roles
from llmcurate.base.tokenizer_file import (
    load_tokenizer,
    post_processor,
    roles_of,
    size_of,
    special_ids,
)


def words(*special: str) -> Tokenizer:
    names = ["<oov>", "a", "b", *special]
    model = models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="<oov>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in ("<oov>", *special)])
    return tokenizer


def test_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    tokenizer = words()
    tokenizer.enable_truncation(1)
    tokenizer.enable_padding(length=5)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path / "tokenizer.json").encode("a b a").ids == [1, 2, 1]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", r"not a tokenizer\.json"),
        ('{"vocab": [{"token_bytes": "YQ=="}]}', r"tokenizer convert makes a tokenizer\.json"),
        (json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}), "no"),
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UsageError, match=reason) as caught:
        load_tokenizer(tmp_path / "tokenizer.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("before", "behind"), [((3,), ()), ((), (4,)), ((3, 4), (4,)), ((), ())])
def test_the_tokens_put_around_a_text_are_those_read_back(
    tmp_path: Path, before: tuple[int, ...], behind: tuple[int, ...]
) -> None:
    tokenizer, path = words("<x>", "<y>"), tmp_path / "tokenizer.json"
    tokenizer.post_processor = post_processor(tokenizer, Roles(before=before, behind=behind))
    tokenizer.save(str(path))
    loaded = load_tokenizer(path)
    assert loaded.encode("a b").ids == [*before, 1, 2, *behind]
    assert loaded.encode("a", "b").ids == [*before, 1, *behind, *before, 2, *behind]
    roles = roles_of(path, loaded)
    assert (roles.before, roles.behind) == (before, behind)
    assert (size_of(loaded), special_ids(loaded)) == (5, {"<oov>": 0, "<x>": 3, "<y>": 4})
