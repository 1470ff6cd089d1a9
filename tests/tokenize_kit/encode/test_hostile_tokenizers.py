"""Damaged or hostile tokenizer files and unusual texts: one-line errors or correct results."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from llmcurate.base.errors import LlmcurateError
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.shards.writer import Layout, encode_shards
from train.data.shards import read_shards


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["the cat sat on the mat " * 20], out, vocab=300)
    return out / "tokenizer.json"


def changed(change):
    def build(raw):
        parts = json.loads(raw)
        change(parts)
        return json.dumps(parts).encode()

    return build


def _far(parts):
    parts["model"]["vocab"]["far"] = 4_000_000_000


def _far_added(parts):
    parts["added_tokens"][0]["id"] = 3_900_000_000
    parts["model"]["vocab"]["<|endoftext|>"] = 3_900_000_000


def _prefix(parts):
    parts["model"]["continuing_subword_prefix"] = "x" * 1000


def _no_model(parts):
    del parts["model"]


def _merge_of_nothing(parts):
    parts["model"]["merges"].append(["nowhere", "t"])


BAD = {
    "empty": lambda raw: b"",
    "nul": lambda raw: b"\x00" * 100,
    "half": lambda raw: raw[: len(raw) // 2],
    "last-byte": lambda raw: raw.rstrip()[:-1],
    "not-utf8": lambda raw: raw.replace(b"the", b"\xff\xfe\xfd", 1),
    "deep": lambda raw: b"[" * 200_000,
    "number": lambda raw: b"7",
    "other-json": lambda raw: b'{"text": "no tokenizer"}',
    "far-id": changed(_far),
    "far-special-id": changed(_far_added),
    "no-model": changed(_no_model),
    "merge-of-nothing": changed(_merge_of_nothing),
    "no-tokens": lambda raw: (
        b'{"version":"1.0","added_tokens":[],"normalizer":null,'
        b'"pre_tokenizer":null,"post_processor":null,"decoder":null,"truncation":null,'
        b'"padding":null,"model":{"type":"WordLevel","vocab":{},"unk_token":"x"}}'
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_tokenizer_is_one_line_that_names_it(good, tmp_path, name):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(BAD[name](good.read_bytes()))
    for opening in (open_vocabulary, open_candidate):
        with pytest.raises(LlmcurateError) as caught:
            opening(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
        assert caught.value.exit_code == 2


def test_a_file_on_which_the_library_would_abort_is_refused_before_it(good, tmp_path):
    """In a process of its own: no exception stops an abort."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(changed(_prefix)(good.read_bytes()))
    code = (
        "import sys; from pathlib import Path\n"
        "from llmcurate.base.tokenizer_file import load_tokenizer\n"
        "from llmcurate.base.errors import LlmcurateError\n"
        "try: load_tokenizer(Path(sys.argv[1]))\n"
        "except LlmcurateError as error: sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, capture_output=True)
    assert done.returncode == 7, done.stderr


def test_text_that_the_library_cannot_encode_is_a_one_line_error(tmp_path):
    tokenizer = Tokenizer(models.Unigram([("a", -1.0), ("b", -2.0)], None))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = open_vocabulary(tmp_path / "tokenizer.json")
    with pytest.raises(LlmcurateError, match=r"cannot encode the text .*unk_id"):
        vocabulary.encode(np.frombuffer(bytearray(b"abc"), np.uint8), np.array([0, 3]))


EDGES = {
    "empty": "",
    "one-character": "x",
    "one-wide-character": "漢",
    "nul": "\x00",
    "nuls-in-text": "the\x00cat\x00\x00",
    "surrogate-neighbours": "\ud7ff\ue000\U0010ffff",
    "special-token": "<|endoftext|>",
    "one-long-word": "th" * 50_000,
    "spaces": " " * 50_000,
}


@pytest.mark.parametrize("workers", [1, 2])
def test_texts_at_the_edge_come_back(batch_of, good, tmp_path, workers):
    rows = list(EDGES.items())
    encode_shards([batch_of(*rows)], good, tmp_path, Layout(), workers)
    shards, candidate = read_shards(tmp_path, verify=True), open_candidate(good)
    for number, (name, text) in enumerate(rows):
        ids = shards.document(number).tolist()
        assert candidate.decode(ids[:-1]) == text, name


def test_encoding_no_documents_is_an_error(batch_of, good, tmp_path):
    with pytest.raises(LlmcurateError, match="no documents to encode"):
        encode_shards([], good, tmp_path)
    with pytest.raises(LlmcurateError, match="no documents to encode"):
        encode_shards([batch_of()], good, tmp_path)
