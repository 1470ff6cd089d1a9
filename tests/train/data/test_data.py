from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from tests.train.data.causal_rows import causal
from train.data.feed import Sampler
from train.data.rows import Rows, longest, split
from train.data.shards import read_shards
from train.objectives.example import IGNORED


@pytest.fixture(scope="module")
def shards(shard_folder):
    return read_shards(shard_folder, verify=True)


@pytest.fixture(scope="module")
def rows(shards):
    return Rows(shards, np.arange(shards.documents), 48)


def test_packing_loses_and_repeats_nothing(shards, rows):
    batch = causal(rows)
    stream = batch.targets.flatten()[: rows.tokens].tolist()
    expected = [t for index in range(shards.documents) for t in shards.document(index).tolist()]
    assert stream == expected and batch.tokens == len(expected)
    padding = batch.targets.flatten()[rows.tokens :]
    assert (padding == IGNORED).all() and len(padding) < 48


def test_the_input_is_the_stream_one_token_earlier(rows):
    batch = causal(rows)
    inputs = batch.inputs.flatten()[: rows.tokens]
    targets = batch.targets.flatten()[: rows.tokens]
    assert torch.equal(inputs[1:], targets[:-1]) and inputs[0] == targets[-1]


def test_every_document_starts_from_the_end_of_text(shards, rows):
    """So the first token is predicted from nothing but the start, as in generation."""
    batch, end = causal(rows), shards.end
    documents, inputs = batch.documents.flatten(), batch.inputs.flatten()
    starts = documents.diff(prepend=torch.tensor([-2])).nonzero().flatten()
    starts = starts[documents[starts] >= 0]
    assert len(starts) == shards.documents
    assert (inputs[starts] == end).all()


def test_an_epoch_visits_every_row_once_in_its_own_order(rows):
    sampler = Sampler(rows, batch_rows=4, seed=3)
    seen = [row for step in range(rows.count) for row in sampler.row_numbers(step)]
    epochs = [seen[start : start + rows.count] for start in range(0, len(seen), rows.count)]
    assert len(epochs) == 4
    assert all(sorted(epoch) == list(range(rows.count)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_a_batch_is_a_function_of_seed_and_step(rows):
    forwards = Sampler(rows, batch_rows=4, seed=3)
    numbers = [forwards.row_numbers(step) for step in range(50)]
    backwards = Sampler(rows, batch_rows=4, seed=3)
    assert [backwards.row_numbers(step) for step in reversed(range(50))] == numbers[::-1]
    assert Sampler(rows, batch_rows=4, seed=4).row_numbers(0) != numbers[0]


def test_a_batch_is_traced_to_its_documents(shards, rows):
    sampler = Sampler(rows, batch_rows=3, seed=0)
    for step in range(5):
        batch = causal(sampler.rows, sampler.row_numbers(step))
        named = {int(number) for number in batch.documents.unique() if number >= 0}
        assert sampler.document_ids(step) == shards.ids(
            list(dict.fromkeys(n for n in batch.documents.flatten().tolist() if n >= 0))
        )
        assert set(sampler.document_ids(step)) == {f"doc-{number}" for number in named}


def test_the_split_is_whole_documents_and_follows_the_seed(shards):
    train, held_out = split(shards, held_out=0.2, seed=0)
    assert sorted([*train, *held_out]) == list(range(shards.documents))
    assert 0 < len(held_out) < shards.documents / 2
    assert any(
        split(shards, held_out=0.2, seed=seed)[1].tolist() != held_out.tolist()
        for seed in range(1, 4)
    )


@pytest.mark.parametrize("share", [1e-9, 1 - 1e-9])
def test_both_sides_of_the_split_have_a_document(shards, share):
    assert all(len(side) for side in split(shards, held_out=share, seed=0))


def encoded(folder, texts):
    import pyarrow as pa

    from tokenize_kit.learn.training import train_tokenizer
    from tokenize_kit.shards.writer import encode_shards

    train_tokenizer(texts, folder / "t", vocab=300)
    rows = [{"id": str(index), "text": text} for index, text in enumerate(texts)]
    batch = pa.RecordBatch.from_pylist(rows)
    encode_shards([batch], folder / "t" / "tokenizer.json", folder / "s")
    return read_shards(folder / "s")


def test_exact_duplicates_are_never_on_both_sides_of_a_split(tmp_path):
    texts = [f"document number {index % 9}" for index in range(60)]
    shards = encoded(tmp_path, texts)
    for seed in range(5):
        train, held_out = split(shards, held_out=0.3, seed=seed)
        assert not {texts[index] for index in train} & {texts[index] for index in held_out}


@given(st.integers(1, 2**32), st.data())
def test_unique_tokens_takes_only_the_documents_it_needs_and_keeps_the_held_out_side(
    shards, seed, data
):
    train, held_out = split(shards, held_out=0.2, seed=seed)
    there = int(shards.length[train].sum())
    less, more = sorted(data.draw(st.integers(1, there)) for _ in range(2))
    parts = [split(shards, held_out=0.2, seed=seed, unique_tokens=each) for each in (less, more)]
    (few, aside), (many, also_aside) = parts
    assert set(few) <= set(many) <= set(train) and list(many) == sorted(many)
    assert aside.tolist() == also_aside.tolist() == held_out.tolist()
    longest = int(shards.length[few].max())
    assert less <= shards.length[few].sum() < less + longest
    for documents in (few, train):  # just so much takes no document more
        just = int(shards.length[documents].sum())
        same, _ = split(shards, held_out=0.2, seed=seed, unique_tokens=just)
        assert same.tolist() == documents.tolist()
    with pytest.raises(LlmcurateError, match=f"it has {there:,} tokens to train on: give fewer"):
        split(shards, held_out=0.2, seed=seed, unique_tokens=there + 1)


def test_a_document_of_just_the_longest_piece_is_one_row_and_a_token_is_a_piece(shards):
    size = int(shards.length[0])
    for context, count in ((size + 4, 1), (size + 3, 2)):
        rows = Rows(shards, np.array([0]), context, packing="padding", takes=lambda n, _: n + 4)
        assert rows.count == count and rows.longest == context - 4
    assert longest(lambda n, _: n + 4, 5) == 1
    with pytest.raises(LlmcurateError, match="context is 4: too short for the objective"):
        longest(lambda n, _: n + 4, 4)


def test_one_document_cannot_be_split(tmp_path):
    with pytest.raises(LlmcurateError, match="two different"):
        split(encoded(tmp_path, ["same", "same"]), held_out=0.5, seed=0)


def test_row_order_is_not_the_shard_order_and_is_spread(rows):
    order = Sampler(rows, batch_rows=1, seed=0).order(0, np.arange(rows.count))[0]
    assert not np.array_equal(order, np.arange(rows.count))
    assert Counter(np.diff(order) == 1)[True] < rows.count / 4


def damage(folder, name, change):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("manifest.json", lambda data: data[:-20]),
        ("manifest.json", lambda data: data.replace(b'"documents": 40', b'"documents": 41')),
        ("manifest.json", lambda data: data.replace(b'"uint16"', b'"float8"')),
        ("tokens-00000.bin", lambda data: data[:-2]),
        ("tokens-00001.idx", lambda data: data[:-3]),
        ("tokens-00001.idx", lambda data: data[8:]),
    ],
)
def test_damaged_shards_are_named(shard_folder, tmp_path, name, change):
    import shutil

    copy = shutil.copytree(shard_folder, tmp_path / "copy")
    damage(copy, name, change)
    with pytest.raises(LlmcurateError, match="encode again"):
        read_shards(copy)


def test_verify_finds_a_changed_token(shard_folder, tmp_path):
    import shutil

    copy = shutil.copytree(shard_folder, tmp_path / "copy")
    damage(copy, "tokens-00000.bin", lambda data: b"\x01\x00" + data[2:])
    read_shards(copy)
    with pytest.raises(LlmcurateError, match=r"tokens-00000\.bin"):
        read_shards(copy, verify=True)


def test_tokens_that_do_not_count_are_read_and_not_scored(shards):
    drawn = np.random.default_rng(1)
    masks = [(drawn.random(len(part)) < 0.5).astype(np.uint8) for part in shards.tokens]
    half = replace(shards, masks=masks)
    documents = np.arange(shards.documents)
    whole = Rows(half, documents, 48)
    batch = causal(whole)
    masked = causal(Rows(half, documents, 48, masked=True))
    counted = torch.from_numpy(np.concatenate([half.counted(int(k)) for k in documents]))
    targets = masked.targets.flatten()[: whole.tokens]
    assert torch.equal(targets != IGNORED, counted)
    assert torch.equal(targets[counted], batch.targets.flatten()[: whole.tokens][counted])
    assert torch.equal(masked.inputs, batch.inputs) and masked.tokens == int(counted.sum())
