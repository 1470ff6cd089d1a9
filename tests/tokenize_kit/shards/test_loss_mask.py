"""--loss-mask: which tokens count in training, against the plain meaning of the ranges."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from llmcurate.base.errors import LlmcurateError
from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.shards.loss_mask import mask_of
from tokenize_kit.shards.shard_files import DOCUMENTS
from tokenize_kit.shards.texts import texts_of
from tokenize_kit.shards.writer import Layout, encode_shards
from train.data.shards import read_shards

PAIRS = pa.list_(pa.list_(pa.int64()))


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer")
    texts = ["the cat sat on the mat ", "กินข้าวที่บ้าน ", "q: why? a: because "]
    train_tokenizer(texts * 20, out, vocab=340)
    return out / "tokenizer.json"


@pytest.fixture(scope="module")
def candidate(tokenizer_json):
    return open_candidate(tokenizer_json)


def batch(texts, values, kind):
    ids = [f"d{k}" for k in range(len(texts))]
    columns = [pa.array(ids), pa.array(texts, pa.string()), pa.array(values, kind)]
    return pa.RecordBatch.from_arrays(columns, ["id", "text", "train_on"])


def masks(candidate, texts, values, kind=PAIRS, begin=False, end=True):
    """Of each document, as lists."""
    (texts_of_batch,) = texts_of([batch(texts, values, kind)], "train_on")
    ids, counts = candidate.encode(texts_of_batch.data, texts_of_batch.offsets)
    mask = mask_of(texts_of_batch, "train_on", candidate, ids, counts, begin, end)
    bounds = np.cumsum(counts + begin + end)[:-1]
    return [part.tolist() for part in np.split(mask, bounds)]


def plainly(candidate, text, ranges):
    """Every token asked for every character."""
    raw = np.frombuffer(bytearray(text.encode()), np.uint8)
    offsets = np.array([0, len(raw)])
    ids, counts = candidate.encode(raw, offsets)
    starts, ends = candidate.spans(raw, offsets, ids, counts)
    wanted = {k for start, end in ranges for k in range(start, end)}
    of_byte = np.cumsum((raw & 0xC0) != 0x80) - 1
    mask = [
        int(any(int(of_byte[b]) in wanted for b in range(a, z)))
        for a, z in zip(starts, ends, strict=True)
    ]
    return [*mask, int(len(text) - 1 in wanted)]


TEXT = st.text(st.sampled_from("the cat sกี่é😀\n"), max_size=25)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXT, st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)))), max_size=4))
def test_a_token_counts_where_it_shares_a_character_with_a_range(candidate, drawn):
    texts = [text for text, _ in drawn] or [""]
    ranges = [
        [sorted((round(a * len(text)), round(b * len(text)))) for a, b in pairs]
        for text, pairs in drawn
    ] or [[]]
    expected = [plainly(candidate, *pair) for pair in zip(texts, ranges, strict=True)]
    assert masks(candidate, texts, ranges) == expected


STRUCT = pa.list_(pa.struct([("start", pa.int32()), ("end", pa.int32())]))
WAYS = [
    (pa.large_list(pa.list_(pa.int32(), 2)), [[[0, 3]], []]),
    (STRUCT, [[{"start": 0, "end": 3}], []]),
    (pa.string(), ["[[0, 3]]", "[]"]),
    (pa.string(), ['[{"start": 0, "end": 3}]', "false"]),
]


@pytest.mark.parametrize("kind, values", WAYS, ids=["fixed", "structs", "json", "json-objects"])
def test_ranges_may_be_written_in_any_of_these_ways(candidate, kind, values):
    texts = ["the cat", "sat"]
    assert masks(candidate, texts, values, kind) == masks(candidate, texts, [[[0, 3]], []])


def test_a_boolean_is_for_all_of_a_document_and_its_end(candidate):
    mask = masks(candidate, ["the cat", "sat", ""], [True, False, True], pa.bool_(), begin=True)
    assert mask[0][0] == 0 and set(mask[0][1:]) == {1}
    assert set(mask[1]) == {0}
    assert mask[2] == [0, 1]


def test_the_end_counts_where_the_last_character_does(candidate):
    with_end, without = masks(candidate, ["the cat", "the cat"], [[[4, 7]], [[0, 3]]])
    assert (with_end[-1], without[-1]) == (1, 0)


BAD = [
    (PAIRS, [[[0, 9]]], "document d0: its train_on is wrong: \\[0, 9\\) is not within"),
    (PAIRS, [[[3, 1]]], "not within"),
    (PAIRS, [[[-1, 1]]], "not within"),
    (PAIRS, [None], "null: give true"),
    (PAIRS, [[[0, 1, 2]]], "is not \\[start, end\\)"),
    (PAIRS, [[None]], "is not \\[start, end\\)"),
    (pa.string(), ["[[0,"], "not JSON"),
    (pa.string(), ["7"], "not a list"),
    (pa.string(), ['[[0, "a"]]'], "is not \\[start, end\\)"),
    (pa.float64(), [0.5], "of the type double"),
]
NAMES = "beyond backwards negative null triple hole cut number letters float".split()


@pytest.mark.parametrize("kind, values, message", BAD, ids=NAMES)
def test_an_invalid_loss_mask_is_named(candidate, kind, values, message):
    with pytest.raises(LlmcurateError, match=message):
        masks(candidate, ["the cat"], values, kind)


def test_a_tokenizer_that_the_library_runs_has_masks_too(tmp_path):
    vocab = {"[UNK]": 0, "der": 1, "zug": 2, "<|endoftext|>": 3}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    candidate = open_candidate(tmp_path / "tokenizer.json")
    assert masks(candidate, ["DER ÖÖ  Zug"], [[[4, 6]]], end=False) == [[0, 1, 0]]


@pytest.mark.parametrize("shuffle", [None, 5], ids=["in-order", "shuffled"])
def test_the_reader_has_the_mask_of_every_document(tokenizer_json, tmp_path, shuffle):
    texts = [f"q: {k * 7919}? a: because {k}" for k in range(60)]
    values = [[[text.index("a:"), len(text)]] for text in texts]
    layout = Layout(loss_mask="train_on", shard_tokens=200, shuffle=shuffle, val_fraction=0.2)
    source = batch(texts, values, PAIRS)
    manifest = encode_shards(
        [source.slice(0, 25), source.slice(25)], tokenizer_json, tmp_path, layout
    )
    loaded = open_candidate(tokenizer_json)
    expected = {
        f"d{k}": plainly(loaded, text, ranges)
        for k, (text, ranges) in enumerate(zip(texts, values, strict=True))
    }
    seen = 0
    for folder in (tmp_path, tmp_path / "val"):
        shards = read_shards(folder, verify=True)
        assert len(shards.tokens) == len(list(folder.glob("loss-*.mask")))
        for number, name in enumerate(shards.ids(list(range(shards.documents)))):
            assert shards.counted(number).astype(int).tolist() == expected[name]
            seen += 1
        side = json.loads((folder / "manifest.json").read_bytes())
        assert side["loss_tokens"] == sum(int(mask.sum()) for mask in shards.masks)
    assert seen == 60 and manifest["loss_mask"] == "train_on"


def test_without_a_mask_every_token_counts(tokenizer_json, tmp_path):
    manifest = encode_shards([batch(["the cat"], [True], pa.bool_())], tokenizer_json, tmp_path)
    shards = read_shards(tmp_path)
    assert shards.masks is None and shards.counted(0).all()
    assert len(shards.counted(0)) == shards.length[0]
    assert not {"loss_mask", "loss_tokens"} & set(manifest)


def test_a_mask_that_was_cut_short_is_refused(tokenizer_json, tmp_path):
    layout = Layout(loss_mask="train_on")
    encode_shards([batch(["the cat"], [True], pa.bool_())], tokenizer_json, tmp_path, layout)
    mask = tmp_path / "loss-00000.mask"
    mask.write_bytes(mask.read_bytes()[:-1])
    with pytest.raises(LlmcurateError, match="not one byte per token"):
        read_shards(tmp_path)
    mask.unlink()
    with pytest.raises(LlmcurateError, match=r"loss-00000.mask: missing"):
        read_shards(tmp_path)


def test_a_mask_in_which_nothing_counts_is_refused(tokenizer_json, tmp_path):
    layout = Layout(loss_mask="train_on")
    with pytest.raises(LlmcurateError, match="counts no token"):
        encode_shards([batch(["the cat"], [False], pa.bool_())], tokenizer_json, tmp_path, layout)
    assert not [*tmp_path.iterdir()]


def test_shards_of_other_settings_leave_no_old_mask(tokenizer_json, tmp_path):
    source = [batch(["the cat"], [True], pa.bool_())]
    encode_shards(source, tokenizer_json, tmp_path, Layout(loss_mask="train_on"))
    encode_shards(source, tokenizer_json, tmp_path)
    assert not [*tmp_path.glob("loss-*")]
    assert [*DOCUMENTS.names] == ["id", "source", "lang", "tokens", "bytes"]


def test_a_missing_column_and_another_format_are_refused(batch_of, tokenizer_json, tmp_path):
    with pytest.raises(LlmcurateError, match="no column 'train_on'"):
        encode_shards(
            [batch_of(("a", "cat"))], tokenizer_json, tmp_path, Layout(loss_mask="train_on")
        )
    with pytest.raises(LlmcurateError, match="format megatron has no loss mask"):
        Layout(loss_mask="train_on", form="megatron")


@pytest.mark.parametrize(
    ("normal", "text", "file"),
    [
        ("nfc", "cafe\u0301 cat", "tokenizer.json"),
        ("nfkc", "\ufb01\ufb01ne cat", "tokenizer.json"),
        ("nfkc", "\ufb01\ufb01ne cat", "tokenizer.model"),
    ],
    ids=["nfc", "nfkc-json", "nfkc-model"],
)
def test_what_the_tokenizer_normalises_moves_no_range(tmp_path, normal, text, file):
    """Ranges are of the document's text, which NFC shortens and NFKC lengthens."""
    model = "bpe" if normal == "nfc" else "unigram"
    texts = ["cat, caf\u00e9 fifine "] * 9
    train_tokenizer(texts, tmp_path, model=model, vocab=400, normalize=normal)
    candidate = open_candidate(tmp_path / file)
    begin = text.index("cat")
    (mask,) = masks(candidate, [text], [[[begin, begin + 3]]], end=False)
    raw = np.frombuffer(bytearray(text.encode()), np.uint8)
    ids, _ = candidate.encode(raw, np.array([0, len(raw)]))
    counted = [int(number) for number, counts in zip(ids, mask, strict=True) if counts]
    assert candidate.decode(counted).strip() == "cat" and not all(mask)
