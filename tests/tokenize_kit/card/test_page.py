"""The page of a tokenizer's card: its texts in their tokens, its vocabulary, all of it inert."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.training import train_on_corpus

HOSTILE = "<script>alert(1)</script> ภาษาไทย \u202e & \"quoted\" 'words' naïve\n\tfile"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    import pyarrow as pa

    out = tmp_path_factory.mktemp("tok")
    texts = pa.table({"id": ["a", "b"], "text": [HOSTILE * 20, "plain words " * 50]})
    train_on_corpus(lambda: iter(texts.to_batches()), out, TrainingOptions(sizes=(400,)))
    return out, (out / "card.html").read_text(encoding="utf-8")


def test_tokens_of_a_text_together_are_the_text(page: tuple[Path, str]) -> None:
    texts = re.findall(r"<p class=tokens dir=auto>(.*?)</p>", page[1], re.S)
    whole = [unescape(re.sub(r"<[^>]*>", "", text)) for text in texts]
    assert "plain␣words␣plain␣words" in whole[0] + whole[1]


def test_the_vocabulary_is_listed_by_id(page: tuple[Path, str]) -> None:
    listed = re.search(r"<pre id=vocabulary hidden>\n(.*?)</pre>", page[1], re.S)
    assert listed
    lines = [line.split("\t") for line in unescape(listed[1]).strip().splitlines()]
    candidate = open_candidate(page[0] / "tokenizer.json")
    assert [int(line[0]) for line in lines] == sorted(candidate.tokens.keys() - candidate.special)


def test_a_byte_of_a_cut_character_is_hexadecimal(page: tuple[Path, str]) -> None:
    assert "&lt;E0&gt;" in page[1]


def test_text_on_the_card_is_escaped(page: tuple[Path, str]) -> None:
    assert page[1].count("<script>") == 1 and "alert(1)</script>" not in page[1]
    assert "\u202e" not in page[1]


def test_the_policy_names_the_one_script(page: tuple[Path, str]) -> None:
    assert re.search(r"default-src 'none';[^\"]*script-src 'sha256-[\w+/=]{44}'", page[1])
