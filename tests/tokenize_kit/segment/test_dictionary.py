"""Words of Thai, Lao, Khmer and Burmese from a list: cut as by hand, in training alone."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.segment import read_dictionary

WORDS = ["ภาษา", "ไทย", "ตา", "ตาก", "กลม", "ลม", "มา", "น้ำ", "ก", "ກາ", "ខ្មែរ", "မြန်မာ", "စာ"]


@pytest.fixture(scope="module")
def dictionary(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("\n".join([*WORDS, "", "latin", "ไทย x", *WORDS[:2]]), encoding="utf-8")
    return read_dictionary(path)


def cut(dictionary, *texts):
    raw = [text.encode() for text in texts]
    data = np.frombuffer(bytearray().join(raw), np.uint8)
    bounds = dictionary.cut(data, np.cumsum([0, *map(len, raw)])).tolist()
    return [data[a:z].tobytes().decode() for a, z in itertools.pairwise(bounds)]


def test_text_is_cut_into_the_fewest_words(dictionary):
    assert cut(dictionary, "ภาษาไทย") == ["ภาษา", "ไทย"]
    assert cut(dictionary, "ตากลม") == ["ตาก", "ลม"]  # and not ตา กลม: of equals, the longer first
    assert cut(dictionary, "ตากลมมา") == ["ตาก", "ลม", "มา"]
    assert cut(dictionary, "ខ្មែរខ្មែរ") == ["ខ្មែរ", "ខ្មែរ"]
    assert cut(dictionary, "စာမြန်မာ") == ["စာ", "မြန်မာ"]
    assert cut(dictionary, "ກາກາ") == ["ກາ", "ກາ"]


def test_text_outside_dictionary_words_stays_in_one_piece(dictionary):
    assert cut(dictionary, "ฟหดภาษาฟฟไทย") == ["ฟหด", "ภาษา", "ฟฟ", "ไทย"]


def test_other_scripts_and_rows_are_left_alone(dictionary):
    texts = ["a ภาษาไทย, 漢字 ภาษา2", "", "ไทยไทย"]
    assert cut(dictionary, *texts) == ["a ภาษา", "ไทย, 漢字 ภาษา2", "", "ไทย", "ไทย"]


def test_a_word_that_would_split_a_cluster_is_not_taken(dictionary):
    assert cut(dictionary, "ตาก่อน") == ["ตา", "ก่อน"]  # not ตาก + ่อน
    assert cut(dictionary, "กำตา") == ["กำ", "ตา"]


def by_hand(text, words):
    """Pieces of a text of the four scripts alone: every way to cut it is tried."""
    clusters = regex.findall(r"\X", text)
    best = None
    for marks in itertools.product([False, True], repeat=max(0, len(clusters) - 1)):
        pieces, size = [], 0
        for cluster, new in zip(clusters, [True, *marks], strict=True):
            if new:
                pieces.append("")
            pieces[-1] += cluster
        in_dictionary = [piece in words for piece in pieces]
        if any(not a and not b for a, b in itertools.pairwise(in_dictionary)):
            continue  # unknown pieces side by side are one
        size = sum(
            len(regex.findall(r"\X", p))
            for p, k in zip(pieces, in_dictionary, strict=True)
            if not k
        )
        cost = (size, sum(in_dictionary))
        if best is None or cost < best[0]:
            best = (cost, pieces)
    return best[0] if best else (0, 0)


@settings(max_examples=80, deadline=None)
@given(st.text(st.sampled_from("กตาลม่้ำไ"), min_size=1, max_size=9))
def test_few_words_and_few_clusters_outside_them_as_tried_by_hand(dictionary, text):
    pieces = cut(dictionary, text)
    assert "".join(pieces) == text
    ends = set(itertools.accumulate(map(len, pieces)))
    assert ends <= {match.end() for match in regex.finditer(r"\X", text)}
    in_dictionary = [piece in WORDS for piece in pieces]
    outside = sum(
        len(regex.findall(r"\X", p)) for p, k in zip(pieces, in_dictionary, strict=True) if not k
    )
    assert (outside, sum(in_dictionary)) == by_hand(text, set(WORDS))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("กตา่ไខ្a ")), max_size=4
    )
)
def test_any_text_comes_back_from_its_words(dictionary, texts):
    assert "".join(cut(dictionary, *texts)) == "".join(texts)


@pytest.mark.parametrize("model", ["bpe", "char-bpe", "unigram"])
def test_no_token_is_learned_over_the_end_of_a_word(tmp_path, model):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(WORDS), encoding="utf-8")
    texts = ["ภาษาไทยภาษาไทย ตากลม " * 50]
    settings = {"model": model, "vocab": 420, "character_coverage": None}
    card = train_tokenizer(texts, tmp_path / "with", dictionary=str(path), **settings)
    train_tokenizer(texts, tmp_path / "without", **settings)
    vocab = json.loads((tmp_path / "with" / "tokenizer.json").read_text())["model"]["vocab"]
    ids = vocab.values() if isinstance(vocab, dict) else range(len(vocab))
    ours, plain = (load_tokenizer(tmp_path / n / "tokenizer.json") for n in ("with", "without"))
    tokens = {ours.decode([i]) for i in ids}
    assert not any("าไ" in token or "ยภ" in token for token in tokens)
    assert "ไทย" in tokens
    assert any("าไ" in plain.decode([i]) for i in range(plain.get_vocab_size()))
    text = "ภาษาไทยตากลม"
    assert ours.decode(ours.encode(text).ids) == text
    assert card.dictionary.words == len(WORDS) and card.dictionary.ignored == 0


def test_the_words_of_a_list_are_counted(dictionary):
    assert (dictionary.words, dictionary.ignored) == (len(WORDS), 2)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"latin\n", "no word of Thai"),
        (b"\xe0\xb8", "not UTF-8"),
        (b"", "no word of Thai"),
        (None, "No such"),
    ],
    ids=["latin", "not-utf8", "empty", "missing"],
)
def test_an_invalid_word_list_is_a_one_line_error(tmp_path, data, message):
    path = tmp_path / "words.txt"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(LlmcurateError, match=message) as caught:
        train_tokenizer(["ไทย"], tmp_path / "out", vocab=300, dictionary=str(path))
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
