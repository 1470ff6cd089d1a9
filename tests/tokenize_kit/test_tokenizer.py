"""A tokenizer in Python: parts have the ids and the text of the whole, many texts come in order."""

from __future__ import annotations

import base64
import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from llmcurate.base.errors import LlmcurateError
from tests.parameters import drawn, few
from tests.tokenize_kit.encode.tokenizers import tokenizer_of
from tests.tokenize_kit.sentencepiece_models import HARD, LINES, trained
from tokenize_kit.encode.parts import encode_parts
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.tokenizer import Tokenizer

KINDS = ["bpe", "right", "nfc", "loose", "ranks", "unigram", "wordpiece", "char-bpe", "model"]
CONSTANT = KINDS[:6]  # in parts, and not gathered
PATTERNS = {"right": [r"\p{L}+|\p{N}+|[^\p{L}\p{N}]+", r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"]}
PATTERNS["loose"] = ["ab(?=[\\s\\S])|the|\\p{N}{2}"]
MERGES = [(b"t", b"h"), (b"th", b"e"), (b"a", b"b"), (b"1", b"2"), (b" ", b"t"), (b" ", b" ")]


def opened(kind, folder):
    if kind == "ranks":
        tokens = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b"  ", b"12"]
        lines = [base64.b64encode(t).decode() + f" {rank}\n" for rank, t in enumerate(tokens)]
        (folder / "own.tiktoken").write_text("".join(lines))
        return Tokenizer(folder / "own.tiktoken", "o200k")
    if kind == "model":
        (folder / "own.model").write_bytes(trained("unigram", byte_fallback=True, vocab_size=500))
        return Tokenizer(folder / "own.model")
    if kind in PATTERNS:
        tokenizer = tokenizer_of(MERGES, PATTERNS[kind])
        tokenizer.save(str(folder / "tokenizer.json"))
    elif kind == "nfc":
        tokenizer = tokenizer_of([*MERGES, (b"\xc3", b"\xa9")], [r"\p{L}+|\P{L}+"])
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.save(str(folder / "tokenizer.json"))
    else:
        train_tokenizer(LINES * 9, folder, model=kind, vocab=420, character_coverage=None)
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    return {kind: opened(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


def cut(text, sizes):
    """The UTF-8 of a text in parts of these sizes, again and again."""
    raw, ends = text.encode(), itertools.accumulate(itertools.cycle(sizes))
    bounds = [0, *itertools.takewhile(lambda end: end < len(raw), ends), len(raw)]
    return [raw[a:z] for a, z in itertools.pairwise(bounds)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_in_parts_has_the_ids_of_the_whole(tokenizers, kind):
    tokenizer = tokenizers[kind]

    @settings(max_examples=drawn(60), deadline=None)
    @example("abab ab" * 9, [3], 4)
    @example("1234567890 " * 3, [2], 5)
    @example("e\u0301 the  e\u0301" * 5, [1], 3)
    @given(
        HARD.flatmap(lambda t: st.just(t * 3)),
        st.lists(st.integers(1, 9), min_size=1),
        st.integers(1, 30),
    )
    def check(text, sizes, part_bytes):
        expected = tokenizer.encode(text)
        parts = cut(text, sizes)
        assert np.concatenate(list(tokenizer.encode_parts(parts))).tolist() == expected
        inside = tokenizer._tokens
        chunks = [np.frombuffer(c.encode(), np.uint8) for c in text]
        ids = list(encode_parts(chunks, inside.encode, inside.encode_settled, part_bytes))
        assert np.concatenate(ids).tolist() == expected

    check()


@pytest.mark.parametrize("kind", few(CONSTANT, "bpe", "unigram", "right"))
def test_ids_come_before_the_end_of_a_long_text(tokenizers, kind):
    """Before the end, which is no text."""
    parts = itertools.chain(["the cat ab 12, then\n"] * 230_000, [None])
    ids = tokenizers[kind].encode_parts(parts)
    assert len(next(ids)) > 100_000


def test_long_rows_are_encoded_in_parts(tokenizers):
    from tokenize_kit.encode.parts import encode_rows

    inside = tokenizers["bpe"]._tokens
    texts = ["the cat " * 50, "", "a", "กินข้าว" * 40, "b" * 300]
    raw = [text.encode() for text in texts]
    data, offsets = np.frombuffer(b"".join(raw), np.uint8), np.cumsum([0, *map(len, raw)])
    ids, sizes = encode_rows(data, offsets, inside.encode, inside.encode_settled, 100)
    rows = [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])]
    assert rows == [tokenizers["bpe"].encode(text) for text in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_in_parts_have_the_text_of_all(tokenizers, kind):
    tokenizer = tokenizers[kind]
    most = max(tokenizer._tokens.tokens)

    @settings(max_examples=drawn(80), deadline=None)
    @given(HARD.map(tokenizer.encode) | st.lists(st.integers(0, most), max_size=30))
    def check(ids):
        assert "".join(tokenizer.decode_parts(iter(ids))) == tokenizer.decode(ids)

    check()


def test_characters_come_when_they_are_whole(tokenizers):
    tokenizer = tokenizers["ranks"]
    ids = tokenizer.encode("aก😀 the")
    assert list(tokenizer.decode_parts(ids)) == ["a", "ก", "😀", " ", "the"]
    assert list(tokenizer.decode_parts(ids[:3])) == ["a", "\ufffd"]


def test_texts_come_in_order_and_no_more_of_them_is_read_than_needed(tokenizers):
    read = []

    def texts():
        for number in range(100):
            read.append(number)
            yield f"the cat {number} " * 10_000

    tokenizer = tokenizers["bpe"]
    rows = tokenizer.encode_texts(texts())
    assert next(rows).tolist() == tokenizer.encode("the cat 0 " * 10_000)
    assert len(read) < 60
    assert next(rows).tolist() == tokenizer.encode("the cat 1 " * 10_000)
    assert list(tokenizer.encode_texts([])) == [] and tokenizer.encode("") == []


def test_invalid_unicode_is_a_one_line_error(tokenizers):
    tokenizer = tokenizers["bpe"]
    with pytest.raises(LlmcurateError, match="not valid Unicode: surrogates"):
        tokenizer.encode("a\ud800")
    for parts in ([b"a", b"\xff"], [b"\xe0\xb8"]):
        with pytest.raises(LlmcurateError, match="not valid UTF-8"):
            list(tokenizer.encode_parts(parts))
