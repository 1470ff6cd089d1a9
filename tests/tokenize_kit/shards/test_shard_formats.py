"""Split, order, special tokens and the formats of other trainers, each by a plain reader."""

from __future__ import annotations

import hashlib
import json
import struct
from itertools import chain, pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.shards.shard_files import DOCUMENTS, Encoded, megatron_index, token_dtype
from tokenize_kit.shards.shuffle import Shuffle
from tokenize_kit.shards.writer import Layout, Sizes, encode_shards
from train.data.shards import read_shards

END, BEGIN = "<|endoftext|>", "<s>"
ROWS = [(f"d{k}", "the cat sat on the mat " * (k % 5), "web", "en") for k in range(60)]


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer")
    texts = ["the cat sat on the mat " * 20]
    train_tokenizer(texts, out, vocab=300, special_tokens=[END, BEGIN])
    return out / "tokenizer.json"


@pytest.fixture
def encode(batch_of, tokenizer_json, tmp_path):
    def run(name="out", rows=ROWS, sizes=None, **layout):
        return tmp_path / name, encode_shards(
            [batch_of(*rows)], tokenizer_json, tmp_path / name, Layout(**layout), sizes=sizes
        )

    return run


def digests(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def ids_of(folder):
    return [name for path in sorted(folder.glob("documents-*.parquet")) for name in column(path)]


@pytest.mark.parametrize(
    ("form", "vocab", "dtype"),
    [
        ("llmcurate", 65_536, "<u2"),  # the last id is 65,535
        ("llmcurate", 65_537, "<u4"),
        ("olmo", 65_537, "<u4"),
        ("nanogpt", 65_536, "<u2"),
        ("megatron", 65_499, "<u2"),
        ("megatron", 65_500, "<i4"),
    ],
)
def test_tokens_have_two_bytes_up_to_the_last_vocabulary_that_fits(form, vocab, dtype):
    assert token_dtype(form, vocab) == np.dtype(dtype)


def test_nanogpt_has_no_place_for_one_id_more():
    with pytest.raises(LlmcurateError, match="the tokenizer has 65537 ids"):
        token_dtype("nanogpt", 65_537)


def flat(lists):
    return list(chain.from_iterable(lists))


def column(path, name="id"):
    return pq.read_table(path)[name].to_pylist()


def expected(tokenizer_json, names, begin=False, end=True):
    """The documents of these ids as lists of tokens, by the library."""
    tokenizer = load_tokenizer(tokenizer_json)
    texts = {row[0]: row[1] for row in ROWS}
    first, last = (tokenizer.token_to_id(token) for token in (BEGIN, END))
    return [
        [first] * begin + tokenizer.encode(texts[n], add_special_tokens=False).ids + [last] * end
        for n in names
    ]


@pytest.mark.parametrize("begin", [False, True], ids=["no-bos", "bos"])
@pytest.mark.parametrize("end", [False, True], ids=["no-eos", "eos"])
def test_documents_begin_and_end_as_asked(encode, tokenizer_json, begin, end):
    out, manifest = encode(prepend_bos=begin, append_eos=end, shard_tokens=50)
    shards = read_shards(out, verify=True)
    documents = [shards.document(k).tolist() for k in range(shards.documents)]
    assert documents == expected(tokenizer_json, [row[0] for row in ROWS], begin, end)
    assert ("bos" in manifest, "eos" in manifest) == (begin, not end)


def test_a_side_is_decided_by_the_id_alone(encode, tokenizer_json):
    out, manifest = encode(val_fraction=0.25)
    bound = int(0.25 * 2**64)
    held = [row[0] for row in ROWS if xxhash.xxh3_64_intdigest(row[0].encode()) < bound]
    rest = [row[0] for row in ROWS if row[0] not in held]
    assert 5 < len(held) < 25
    for folder, names in ((out, rest), (out / "val", held)):
        shards = read_shards(folder, verify=True)
        assert ids_of(folder) == names == shards.ids(list(range(shards.documents)))
        documents = [shards.document(k).tolist() for k in range(shards.documents)]
        assert documents == expected(tokenizer_json, names)
    val = json.loads((out / "val/manifest.json").read_bytes())
    assert manifest["val"]["documents"] == val["documents"] == len(held)
    assert manifest["val"]["manifest_sha256"] == digests(out)["val/manifest.json"]


def test_a_larger_fraction_holds_out_the_same_documents_and_more(encode):
    small, _ = encode("small", val_fraction=0.2)
    large, _ = encode("large", val_fraction=0.5)
    assert set(ids_of(small / "val")) < set(ids_of(large / "val"))


def test_the_split_of_earlier_settings_does_not_stay(encode):
    encode(val_fraction=0.5, shard_tokens=50)
    out, _ = encode(val_fraction=0.2)
    files = json.loads((out / "val/manifest.json").read_bytes())["files"]
    assert {path.name for path in (out / "val").iterdir()} == {*files, "manifest.json"}
    out, _ = encode()
    plain, _ = encode("plain")
    assert digests(out) == digests(plain)


@pytest.mark.parametrize(
    ("fraction", "side"), [(1e-9, "val"), (1 - 1e-9, "train")], ids=["none", "all"]
)
def test_a_side_without_documents_is_refused(encode, tmp_path, fraction, side):
    with pytest.raises(LlmcurateError, match=f"of 60 documents leaves none for {side}"):
        encode(val_fraction=fraction)
    assert not any((tmp_path / "out").iterdir())


def test_a_shuffle_keeps_every_document_whole_and_depends_on_seed_and_ids_alone(
    encode, tokenizer_json
):
    first, _ = encode("one", shuffle=7, shard_tokens=50)
    second, _ = encode("other", rows=ROWS[::-1], shuffle=7, shard_tokens=50)
    third, _ = encode("third", shuffle=8, shard_tokens=50)
    assert digests(first) == digests(second)
    names = ids_of(first)
    assert sorted(names) == sorted(row[0] for row in ROWS)
    assert names not in ([row[0] for row in ROWS], ids_of(third))
    wanted = sorted(names, key=lambda name: xxhash.xxh3_64_intdigest(name.encode(), 7))
    assert names == wanted
    shards = read_shards(first, verify=True)
    documents = [shards.document(k).tolist() for k in range(shards.documents)]
    assert documents == expected(tokenizer_json, names)


def test_a_shuffle_in_many_runs_is_that_in_one(encode):
    whole, _ = encode("whole", shuffle=3, val_fraction=0.3, shard_tokens=100)
    sizes = Sizes(run_tokens=40, piece_bytes=200)
    parts, _ = encode("parts", sizes=sizes, shuffle=3, val_fraction=0.3, shard_tokens=100)
    assert digests(whole) == digests(parts)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=30), st.integers(0, 5))
def test_spilled_rows_are_read_back_sorted_by_key(tmp_path_factory, documents, seed):
    ordering = Shuffle(tmp_path_factory.mktemp("spill"), seed, np.dtype("<u2"))
    names = [str(k % 7) for k in range(len(documents))]  # some ids come again
    for name, tokens in zip(names, documents, strict=True):
        row = {"id": name, "source": None, "lang": None, "tokens": len(tokens), "bytes": 0}
        table = DOCUMENTS.empty_table().from_pylist([row], schema=DOCUMENTS)
        ordering.add(Encoded(np.array(tokens, "<u2"), table))
    ordering.close()
    spilled = []
    for part in ordering.documents():
        ends = np.cumsum(part.lengths)
        cut = np.split(part.tokens, ends[:-1])
        spilled += zip(part.table["id"].to_pylist(), [c.tolist() for c in cut], strict=True)
    pairs = list(zip(names, documents, strict=True))
    assert spilled == sorted(pairs, key=lambda p: xxhash.xxh3_64_intdigest(p[0].encode(), seed))


def megatron(path):
    """IndexedDataset in a few lines: the documents of PATH.bin, as its reader finds them."""
    raw = path.with_suffix(".idx").read_bytes()
    assert raw[:9] == b"MMIDIDX\x00\x00" and struct.unpack("<Q", raw[9:17]) == (1,)
    dtype = {8: np.uint16, 4: np.int32}[raw[17]]
    sequences, documents = struct.unpack("<QQ", raw[18:34])
    sizes = np.frombuffer(raw, np.int32, sequences, 34)
    pointers = np.frombuffer(raw, np.int64, sequences, 34 + sizes.nbytes)
    at = 34 + sizes.nbytes + pointers.nbytes
    bounds = np.frombuffer(raw, np.int64, documents, at)
    assert len(raw) == at + bounds.nbytes
    data = path.with_suffix(".bin").read_bytes()
    read = [
        np.frombuffer(data, dtype, n, at).tolist() for n, at in zip(sizes, pointers, strict=True)
    ]
    return [flat(read[a:z]) for a, z in pairwise(bounds)]


def test_megatron_reads_every_document(encode, tokenizer_json):
    out, manifest = encode(form="megatron", shard_tokens=80, val_fraction=0.2)
    for folder in (out, out / "val"):
        paths = sorted(folder.glob("tokens-*.bin"))
        documents = [document for path in paths for document in megatron(path)]
        assert documents == expected(tokenizer_json, ids_of(folder))
    assert len(list(out.glob("tokens-*.idx"))) > 1 and manifest["format"] == "megatron"


def test_megatron_takes_wide_tokens_as_int32(tmp_path):
    dtype = token_dtype("megatron", 70_000)
    assert dtype.name == "int32" and token_dtype("megatron", 65_499).name == "uint16"
    assert token_dtype("megatron", 65_500).name == "int32"
    lengths = np.array([2, 0, 3])
    (tmp_path / "x.idx").write_bytes(megatron_index(lengths, dtype))
    (tmp_path / "x.bin").write_bytes(np.arange(69_995, 70_000, dtype=dtype).tobytes())
    assert megatron(tmp_path / "x.bin") == [[69_995, 69_996], [], [69_997, 69_998, 69_999]]


def test_nanogpt_reads_train_and_val(encode, tokenizer_json):
    out, manifest = encode(form="nanogpt", val_fraction=0.2, shard_tokens=20)
    for side in ("train", "val"):
        tokens = np.memmap(out / f"{side}.bin", dtype=np.uint16, mode="r")
        names = column(out / f"documents-{side}.parquet")
        assert tokens.tolist() == flat(expected(tokenizer_json, names))
    assert not (out / "val").exists()
    files = digests(out)
    files.pop("manifest.json")
    assert manifest["files"] == files


def test_nanogpt_refuses_a_vocabulary_it_cannot_read():
    assert token_dtype("nanogpt", 65_536).name == "uint16"
    with pytest.raises(LlmcurateError, match="65537 ids") as error:
        token_dtype("nanogpt", 65_537)
    assert error.value.exit_code == 2


def test_olmo_maps_the_tokens(encode, tokenizer_json):
    out, _ = encode(form="olmo", shard_tokens=80)
    paths = sorted(out.glob("tokens-*.npy"))
    documents = [np.memmap(path, mode="r", dtype=np.uint16).tolist() for path in paths]
    assert len(paths) > 1
    assert flat(documents) == flat(expected(tokenizer_json, [row[0] for row in ROWS]))
    assert not list(out.glob("*.idx"))


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ({"val_fraction": 1.0}, "val_fraction 1.0"),
        ({"val_fraction": -0.1}, "val_fraction -0.1"),
        ({"shuffle": -1}, "shuffle -1"),
        ({"shuffle": 1 << 64}, "shuffle 18446744073709551616"),
        ({"form": "parquet"}, "one of llmcurate, megatron, nanogpt, olmo"),
        ({"shard_tokens": 0}, "shard_tokens 0"),
    ],
    ids=["fraction-1", "fraction-negative", "seed-negative", "seed-large", "format", "shard-0"],
)
def test_wrong_layouts_say_what_is_right(layout, says):
    with pytest.raises(LlmcurateError, match=says) as error:
        Layout(**layout)
    assert error.value.exit_code == 2


def test_a_tokenizer_without_a_token_that_begins_is_refused(batch_of, tmp_path):
    train_tokenizer(["the cat"], tmp_path, vocab=300)
    with pytest.raises(LlmcurateError, match="no beginning-of-text token"):
        encode_shards(
            [batch_of(("a", "b"))],
            tmp_path / "tokenizer.json",
            tmp_path / "out",
            Layout(prepend_bos=True),
        )
