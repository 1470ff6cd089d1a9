"""Dropout that a tokenizer.json keeps from its training: never drawn unless sampling is asked."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from llmcurate.base.tokenizer_file import load_tokenizer
from tests.tokenize_kit.byte_bpe import train_bpe
from tokenize_kit.change.convert import convert
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.judge.compare import HARD_TEXTS
from tokenize_kit.shards.writer import Layout, encode_shards
from tokenize_kit.tokenizer import Tokenizer as Opened

TEXTS = ["the cat sat on the mat, then that", "low lower lowest new newer sunk", *HARD_TEXTS]


@pytest.fixture(scope="module", params=["byte-level", "characters"])
def both(request, tmp_path_factory):
    """A tokenizer without dropout, and the file of the same one with dropout."""
    folder = tmp_path_factory.mktemp("dropout")
    if request.param == "byte-level":
        plain = train_bpe(
            iter(TEXTS * 9), vocab=400, digits="single", special_tokens=["<|endoftext|>"]
        )
    else:
        from tokenizers import models, normalizers, trainers

        plain = Tokenizer(models.BPE(unk_token="<unk>"))
        plain.normalizer = normalizers.Replace(" ", "▁")
        plain.train_from_iterator(TEXTS * 9, trainers.BpeTrainer(special_tokens=["<unk>"]))
    content = json.loads(plain.to_str())
    content["model"]["dropout"] = 0.5
    (folder / "tokenizer.json").write_text(json.dumps(content))
    plain.encode_special_tokens = True
    return plain, folder


def test_ids_are_those_without_dropout_everywhere(both):
    plain, folder = both
    expected = [plain.encode(text, add_special_tokens=False).ids for text in TEXTS]
    loaded = load_tokenizer(folder / "tokenizer.json")
    assert [Opened(folder).encode(text) for text in TEXTS] == expected
    assert [loaded.encode(text, add_special_tokens=False).ids for text in TEXTS] == expected
    assert open_candidate(folder).engine == (
        "llmcurate" if not Encoder(plain).reason else "tokenizers"
    )


def shards(folder, out, **options):
    batch = pa.record_batch(
        {
            "id": [str(n) for n in range(len(TEXTS))],
            "source": ["s"] * len(TEXTS),
            "lang": ["en"] * len(TEXTS),
            "text": TEXTS,
        }
    )
    said = []
    layout = Layout(append_eos=False, **options)
    encode_shards(iter([batch]), folder / "tokenizer.json", out, layout, say=said.append)
    return (out / "tokens-00000.bin").read_bytes(), said


def test_two_runs_give_the_same_shards_and_one_line_says_why(both, tmp_path):
    plain, folder = both
    first, said = shards(folder, tmp_path / "a")
    assert first == shards(folder, tmp_path / "b")[0]
    assert said == ["tokenizer.json has dropout 0.5, which is off; --sampling 0.5 draws with it"]
    ids = [n for text in TEXTS for n in plain.encode(text, add_special_tokens=False).ids]
    assert np.frombuffer(first, np.uint16).tolist() == ids


def test_sampling_draws_with_the_rate_that_is_asked(both, tmp_path):
    plain, folder = both
    if Encoder(plain).plan is None:
        pytest.skip("sampling is for byte-level BPE")
    plain_bytes, _ = shards(folder, tmp_path / "a")
    drawn, said = shards(folder, tmp_path / "b", sampling=0.5)
    assert len(drawn) > len(plain_bytes) and said == []


def test_an_unchanged_file_keeps_its_dropout(both, tmp_path):
    _, folder = both
    card = convert(folder, tmp_path, "tokenizer.json")
    assert (tmp_path / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert any("dropout 0.5" in note for note in card.notes)
