"""Damaged tokenizers of every format: opened and encoding within their vocabulary, or one line."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from curate.scoring.perplexity.sentences import load_pieces
from llmcurate.base.errors import UsageError
from tests.fuzz.mutations import FUZZ, SEEDS, damaged, damaged_tree, outcome
from tests.tokenize_kit.sentencepiece_models import LINES, ODD, PARTS, trained
from tokenize_kit.change.convert import convert
from tokenize_kit.change.original import FILES, open_source
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import CannotHold
from tokenize_kit.formats.gguf import to_metadata, write_metadata
from tokenize_kit.formats.json_forms import tokenizer_of
from tokenize_kit.formats.sentencepiece_model import read_form
from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.learn.training import train_tokenizer

TEXTS = [*LINES, ODD, "".join(PARTS), "", "a" * 300, "  \n\n x"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small tokenizer of each format."""
    folder = tmp_path_factory.mktemp("tokenizers")
    train_tokenizer(LINES * 9, folder, vocab=320, pattern="gpt2")
    unigram = trained("unigram", normalization_rule_name="nfkc")
    bpe = trained("bpe", byte_fallback=True, normalization_rule_name="identity")
    ranks = "".join(
        f"{base64.b64encode(token).decode()} {rank}\n"
        for rank, token in enumerate([*(bytes([b]) for b in range(256)), b"th", b"the", b" the"])
    )
    spm = read_form(unigram)
    files = {
        "bytes/tokenizer.json": (folder / "tokenizer.json").read_bytes(),
        "pieces/tokenizer.json": tokenizer_of(read_form(bpe)).to_str().encode(),
        "unigram/tokenizer.json": tokenizer_of(spm).to_str().encode(),
        "unigram/tokenizer.model": unigram,
        "bpe/tokenizer.model": bpe,
        "ranks/tokenizer.tiktoken": ranks.encode(),
        "bytes/tokenizer.gguf": write_metadata(
            to_metadata(open_source(folder / "tokenizer.json").form)
        ),
        "unigram/tokenizer.gguf": write_metadata(to_metadata(spm)),
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def _vocabulary(path: Path) -> None:
    if path.suffix == ".gguf":
        encode, size = open_source(path).encode, 1 << 31
    else:
        vocabulary = open_vocabulary(path, "gpt2" if path.suffix == ".tiktoken" else None)
        encode, size = vocabulary.encode, vocabulary.size
    data, offsets = pack_texts(TEXTS)
    ids, counts = encode(data, offsets)
    assert len(counts) == len(TEXTS) and counts.sum() == len(ids)
    assert not len(ids) or int(np.asarray(ids).max()) < size


def _converted(path: Path) -> None:
    to = list(FILES)[path.stat().st_size % len(FILES)]
    pattern = "gpt2" if path.suffix == ".tiktoken" else None
    convert(path, path.parent / "converted", to, pattern=pattern, batches=[pack_texts(TEXTS)])


def _candidate(path: Path) -> None:
    candidate = open_candidate(path, "gpt2" if path.suffix == ".tiktoken" else None)
    data, offsets = pack_texts(TEXTS)
    ids, counts = candidate.encode(data, offsets)
    candidate.spans(data, offsets, ids, counts)
    for row in np.split(ids, np.cumsum(counts)[:-1]):
        candidate.decode(row.tolist())


NAMES = [
    "bytes/tokenizer.json", "pieces/tokenizer.json", "unigram/tokenizer.json",
    "unigram/tokenizer.model", "bpe/tokenizer.model", "ranks/tokenizer.tiktoken",
    "bytes/tokenizer.gguf", "unigram/tokenizer.gguf",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@FUZZ
@given(seed=SEEDS)
def test_a_damaged_tokenizer_encodes_or_is_a_one_line_error(
    whole: Path, name: str, seed: int
) -> None:
    path = whole / "damaged" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = (whole / name).read_bytes()
    if path.suffix == ".json" and seed % 4:
        path.write_bytes(json.dumps(damaged_tree(json.loads(data), seed)).encode())
    else:
        path.write_bytes(damaged(data, seed))
    uses: list[Callable[[Path], None]] = [_vocabulary, _converted]
    for use in uses if path.suffix == ".gguf" else [*uses, _candidate]:
        result = outcome(lambda use=use: use(path))
        assert result is None or str(path) in str(result) or "cannot encode" in str(result)


def test_pieces_that_are_no_utf8_are_a_one_line_error(whole: Path) -> None:
    """They were a UnicodeDecodeError of the library's."""
    path = whole / "no-text.model"
    path.write_bytes((whole / "bpe/tokenizer.model").read_bytes().replace(b"</s>", b"\xff/s>"))
    for use in (_vocabulary, _candidate):
        assert "not a SentencePiece model" in str(outcome(lambda use=use: use(path)))
    with pytest.raises(UsageError, match="not a SentencePiece model"):
        load_pieces(path.read_bytes(), "no-text.model")


def test_a_damaged_table_of_characters_is_a_one_line_error(whole: Path) -> None:
    """It was a bare Exception of the library's."""
    form = replace(read_form((whole / "unigram/tokenizer.model").read_bytes()), charsmap=b"\x01")
    path = whole / "damaged.gguf"
    path.write_bytes(write_metadata(to_metadata(form)))
    assert "does not accept its pieces" in str(outcome(lambda: _vocabulary(path)))
    with pytest.raises(CannotHold, match="precompiled normalizer is damaged"):
        tokenizer_of(form)


def test_a_score_beyond_32_bits_is_a_one_line_error(whole: Path) -> None:
    """It was an OverflowError where the score was written."""
    path = whole / "scores" / "tokenizer.json"
    path.parent.mkdir(exist_ok=True)
    parts = json.loads((whole / "unigram/tokenizer.json").read_bytes())
    parts["model"]["vocab"][-1][1] = -1e300
    path.write_text(json.dumps(parts))
    with pytest.raises(CannotHold, match="does not fit into 32 bits"):
        convert(path, whole / "converted", "sentencepiece", batches=[])


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_a_file_too_large_for_a_tokenizer_is_not_read(whole: Path, name: str) -> None:
    path = whole / "large" / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    for use in (_vocabulary, _candidate, _converted):
        said = str(outcome(lambda use=use: use(path)))
        assert "too large for a tokenizer (1,099,511,627,776 bytes)" in said
