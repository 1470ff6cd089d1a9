"""Tokens by script, against the package `regex` and the ids of `tokenizers`."""

from __future__ import annotations

from collections import Counter

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.tokenize_kit.judge.packed_texts import TEXTS, packed_texts
from tokenize_kit.judge.candidate import (
    COMMON,
    LABELS,
    PARTS,
    SEVERAL,
    open_candidate,
    text_scripts,
)
from tokenize_kit.judge.tally import Tally
from tokenize_kit.learn.training import train_tokenizer

NAMES = ("Latin", "Thai", "Han", "Hiragana", "Cyrillic", "Devanagari")


def script_of(text):
    scripts = {name for name in NAMES if regex.search(rf"\p{{Script={name}}}", text)}
    if len(scripts) > 1:
        return SEVERAL
    return scripts.pop() if scripts else COMMON


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text("aÉ กำ่漢かяहि12.\u0301\u200d😀", max_size=6), max_size=8))
def test_the_script_of_a_text_is_that_of_its_letters(texts):
    assert [LABELS[k] for k in text_scripts(texts)] == [script_of(text) for text in texts]


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_tokens_and_bytes_by_script_are_counted_by_hand(model, tmp_path):
    train_tokenizer(TEXTS, tmp_path, vocab={"bpe": 300, "unigram": 400}[model], model=model)
    tally = Tally(open_candidate(tmp_path))
    tally.add(packed_texts(TEXTS))
    rows = {row["label"]: row for row in tally.result()["scripts"]}
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    uses, sizes = Counter(), Counter()
    for text in TEXTS:
        encoding = library.encode(text)
        for token, (a, z) in zip(encoding.ids, encoding.offsets, strict=True):
            part = token in tally.vocabulary.parts
            label = PARTS if part else script_of(tally.vocabulary.texts[token])
            uses[label] += 1
            sizes[label] += 0 if part else len(text[a:z].encode())
    assert {label: row["tokens"] for label, row in rows.items() if row["tokens"]} == uses
    for label in uses.keys() - {PARTS}:
        assert rows[label]["bytes"] == sizes[label]
    assert sum(row["bytes"] for row in rows.values()) == sum(len(t.encode()) for t in TEXTS)
    assert sum(row["vocab"] for row in rows.values()) == library.get_vocab_size()
