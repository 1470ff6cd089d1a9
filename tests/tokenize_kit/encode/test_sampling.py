"""Sampled encodings: BPE dropout against `tokenizers`."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.normalizers import NFC

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.shards.writer import Layout, encode_shards

WORDS = "the there then other mother another weather gather ภาษา ภาไทย ไทย 東京 東京都".split()
TEXTS = [" ".join(WORDS[k % 13 :] + WORDS[: k % 5]) + "." for k in range(200)]
LETTERS = random.Random(11)
MIXED = ["".join(LETTERS.choices("abdenrt กขค", k=60)) + "." for _ in range(300)]
DRAWS = 10_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizers")
    train_tokenizer(TEXTS, out / "bpe", vocab=330)
    form = json.loads((out / "bpe" / "tokenizer.json").read_text())
    merges = form["model"]["merges"][:-30]  # the words of the others have none
    form["model"] |= {"merges": merges, "ignore_merges": True}
    (out / "whole").mkdir()
    (out / "whole" / "tokenizer.json").write_text(json.dumps(form))
    train_tokenizer(MIXED, out / "unigram", vocab=430, model="unigram")
    train_tokenizer(TEXTS, out / "char-bpe", vocab=430, model="char-bpe")
    return out


def draw(folder, texts: list[str], rate: float, seed: int = 0) -> list[list[int]]:
    keys = np.arange(len(texts), dtype=np.uint64) * np.uint64(2654435761) + np.uint64(seed)
    sample = open_vocabulary(folder / "tokenizer.json").sampled(rate)
    ids, counts = sample(*pack_texts(texts), keys, rate)
    return [part.tolist() for part in np.split(ids, np.cumsum(counts)[:-1])]


def distance(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """Half the sum of the differences of how often each spelling comes (total variation)."""
    own, other = Counter(map(tuple, ours)), Counter(map(tuple, theirs))
    names = own.keys() | other.keys()
    return sum(abs(own[n] / len(ours) - other[n] / len(theirs)) for n in names) / 2


def by_chance(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """About twice the distance that two draws from one distribution have."""
    kinds = len(set(map(tuple, ours)) | set(map(tuple, theirs)))
    return 1.2 * (kinds / len(ours)) ** 0.5


@pytest.mark.parametrize(
    ("model", "text", "rate"),
    [
        (m, t, r)
        for m in ("bpe", "whole")
        for t in ("another", "weather", "ภาษา")
        for r in (0.1, 0.5)
    ],
)
def test_dropout_spells_as_often_as_that_of_tokenizers(folder, model, text, rate):
    library = load_tokenizer(folder / model / "tokenizer.json")
    library.model.dropout = rate
    theirs = [encoding.ids for encoding in library.encode_batch([text] * DRAWS)]
    ours = draw(folder / model, [text] * DRAWS, rate)
    assert len(set(map(tuple, ours))) > 3
    assert distance(ours, theirs) < by_chance(ours, theirs)


@pytest.mark.parametrize("model", ["bpe", "whole"])
def test_nothing_dropped_is_the_usual_encoding_and_everything_dropped_is_bytes(folder, model):
    vocabulary = open_vocabulary(folder / model / "tokenizer.json")
    usual, counts = vocabulary.encode(*pack_texts(TEXTS))
    assert [k for ids in draw(folder / model, TEXTS, 0.0) for k in ids] == usual.tolist()
    drawn = draw(folder / model, TEXTS, 1.0)
    assert [len(ids) for ids in drawn] == [len(text.encode()) for text in TEXTS]
    assert sum(counts) < sum(map(len, drawn))


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=60), st.sampled_from(["bpe", "whole"]), st.floats(0.05, 1.0))
def test_what_is_drawn_spells_the_text(folder, text, model, rate):
    (ids,) = draw(folder / model, [text], rate)
    assert load_tokenizer(folder / model / "tokenizer.json").decode(ids) == text


@pytest.mark.parametrize("model", ["bpe", "whole"])
def test_shards_depend_on_the_seed_and_not_on_workers_or_batches(folder, tmp_path, model):
    rows = pa.table({"id": [f"d{k}" for k in range(len(TEXTS))], "text": TEXTS})
    found = {}
    for name, seed, workers, size in (("a", 1, 1, 200), ("b", 1, 3, 7), ("c", 2, 1, 200)):
        layout = Layout(sampling=0.3, sampling_seed=seed)
        manifest = encode_shards(
            rows.to_batches(size),
            folder / model / "tokenizer.json",
            tmp_path / name,
            layout,
            workers,
        )
        found[name] = (tmp_path / name / "tokens-00000.bin").read_bytes()
        assert manifest["sampling"] == 0.3 and manifest["sampling_seed"] == seed
    assert found["a"] == found["b"] != found["c"]


@pytest.mark.parametrize(
    ("file", "rate", "message"),
    [
        ("bpe/tokenizer.json", 1.5, "give a rate from 0 to 1"),
        ("unigram/tokenizer.json", 0.1, "for byte-level BPE that our kernels encode"),
        ("char-bpe/tokenizer.json", 0.1, "for byte-level BPE that our kernels encode"),
        ("unigram/tokenizer.model", 0.1, "for byte-level BPE that our kernels encode"),
    ],
)
def test_tokenizers_that_cannot_be_sampled_are_refused(folder, file, rate, message):
    with pytest.raises(LlmcurateError, match=message):
        open_vocabulary(folder / file).sampled(rate)


@pytest.mark.parametrize("change", ["normal-form", "added-token"])
def test_texts_for_the_library_are_counted_and_do_not_change_other_draws(folder, tmp_path, change):
    library = load_tokenizer(folder / "bpe" / "tokenizer.json")
    if change == "normal-form":
        library.normalizer = NFC()
    else:
        library.add_tokens(["<x>"])
    library.save(str(tmp_path / "tokenizer.json"))
    texts = ["another the\u0301 <x> mother", *TEXTS[:20]]
    batch = pa.record_batch({"id": [str(k) for k in range(len(texts))], "text": texts})
    layout = Layout(sampling=0.5)
    together = encode_shards([batch], tmp_path / "tokenizer.json", tmp_path / "together", layout)
    rows = [batch.slice(k, 1) for k in range(len(texts))]
    alone = encode_shards(rows, tmp_path / "tokenizer.json", tmp_path / "alone", layout)
    assert together == alone and together["undrawn"] == 1
    usual = encode_shards([batch.slice(1)], tmp_path / "tokenizer.json", tmp_path / "b", layout)
    assert usual["undrawn"] == 0
