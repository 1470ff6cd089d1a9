"""A tokenizer in Python: parts have the ids of the whole, many texts come in order."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from llmcurate.base.errors import LlmcurateError
from tests.parameters import drawn
from tests.tokenize_kit.encode.tokenizers import tokenizer_of
from tests.tokenize_kit.sentencepiece_models import HARD, LINES, trained
from tokenize_kit.encode.parts import encode_parts
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import file_of
from tokenize_kit.formats.tiktoken import is_ranks
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.tokenizer import Tokenizer

KINDS = ["bpe", "right", "nfc", "loose", "ranks", "unigram", "wordpiece", "char-bpe", "model"]
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
    """The text in parts of these sizes, again and again."""
    ends = itertools.accumulate(itertools.cycle(sizes))
    bounds = [0, *itertools.takewhile(lambda end: end < len(text), ends), len(text)]
    return [text[a:z] for a, z in itertools.pairwise(bounds)]


def encoder_of(tokenizer):
    file = file_of(Path(tokenizer._tokens.path))
    return open_vocabulary(file, "o200k" if is_ranks(file) else None).encoder


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_in_parts_has_the_ids_of_the_whole(tokenizers, kind):
    tokenizer = tokenizers[kind]
    encoder = encoder_of(tokenizer)

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
        chunks = [np.frombuffer(part.encode(), np.uint8) for part in cut(text, sizes)]
        ids = list(encode_parts(chunks, encoder.encode, encoder.encode_settled, part_bytes))
        assert np.concatenate(ids).tolist() == expected

    check()


def test_long_rows_are_encoded_in_parts(tokenizers):
    from tokenize_kit.encode.parts import encode_rows

    inside = encoder_of(tokenizers["bpe"])
    texts = ["the cat " * 50, "", "a", "กินข้าว" * 40, "b" * 300]
    raw = [text.encode() for text in texts]
    data, offsets = np.frombuffer(b"".join(raw), np.uint8), np.cumsum([0, *map(len, raw)])
    ids, sizes = encode_rows(data, offsets, inside.encode, inside.encode_settled, 100)
    rows = [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])]
    assert rows == [tokenizers["bpe"].encode(text) for text in texts]


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
