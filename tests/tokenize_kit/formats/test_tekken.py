"""Mistral's tekken.json: the ids of tiktoken with the same ranks, after the special tokens."""

from __future__ import annotations

import base64
import json
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import UsageError
from tests.parameters import drawn
from tests.tokenize_kit.byte_bpe import train_bpe
from tokenize_kit.change.convert import convert
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.tokenizer_json import from_letters
from tokenize_kit.judge.compare import HARD_TEXTS
from tokenize_kit.tokenizer import Tokenizer

PATTERN = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+(?!\S)|\s+"
END = "<|endoftext|>"
APART, MORE = 30, 20  # special tokens; tokens of the list that default_vocab_size cuts off
TEXTS = ["the cat sat on the mat, then that", "กินข้าวที่บ้าน กินที่บ้าน", "a1b22 can't 'LL \n\t x  "]
HARD = st.text(st.sampled_from("abthe 1'sTกี่็漢é\n\t\u200d😀<s>"), max_size=60)


def content_of(tokens, **more):
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    config = {
        "pattern": PATTERN,
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": len(tokens) - MORE + APART,
        "default_num_special_tokens": APART,
        "version": "v3",
    }
    return {"config": config, "vocab": vocab, **more}


@pytest.fixture(scope="module")
def tokens():
    vocab = train_bpe(iter(TEXTS * 9), vocab=420, digits="single", special_tokens=[END]).get_vocab()
    learned = [from_letters(word) for word in sorted(vocab, key=vocab.__getitem__) if word != END]
    return [bytes([byte]) for byte in range(256)] + [t for t in learned if len(t) > 1]


@pytest.fixture(scope="module")
def file(tokens, tmp_path_factory):
    file = tmp_path_factory.mktemp("tekken") / "any-name.json"
    file.write_text(json.dumps(content_of(tokens), indent=1))
    return file


@lru_cache
def opened(file):
    return Tokenizer(file)


@pytest.fixture(scope="module")
def ids_of(tokens):
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {token: rank for rank, token in enumerate(tokens[:-MORE])}
    library = tiktoken.Encoding("test", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    return lambda text: [APART + rank for rank in library.encode_ordinary(text)]


@settings(max_examples=drawn(200), deadline=None)
@given(HARD)
def test_ids_are_those_of_tiktoken_after_the_special_tokens(file, ids_of, text):
    tokenizer = opened(file)
    assert tokenizer.encode(text) == ids_of(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_token_that_default_vocab_size_cuts_off_is_never_given(file, tokens):
    last = max(max(opened(file).encode(text), default=0) for text in [*TEXTS, *HARD_TEXTS])
    assert last < len(tokens) - MORE + APART == open_vocabulary(file).size


def test_special_tokens_have_their_published_names_and_fillers(file):
    special = open_vocabulary(file).special
    assert [special[name] for name in ("<unk>", "<s>", "</s>", "[INST]", "<pad>")] == [
        0,
        1,
        2,
        3,
        11,
    ]
    assert (special["[TOOL_CONTENT]"], special["<SPECIAL_20>"], len(special)) == (19, 20, APART)


def test_a_list_of_special_tokens_in_the_file_counts(tokens, tmp_path):
    listed = [
        {"rank": rank, "token_str": name, "is_control": True}
        for rank, name in enumerate(["<unk>", "<s>", "</s>", "[THINK]"])
    ]
    (tmp_path / "tekken.json").write_text(json.dumps(content_of(tokens, special_tokens=listed)))
    vocabulary = open_vocabulary(tmp_path / "tekken.json")
    assert vocabulary.special["[THINK]"] == 3 and vocabulary.special["<SPECIAL_4>"] == 4
    assert vocabulary.roles.end == 2 and vocabulary.roles.begin == 1


@pytest.mark.parametrize("to", ["tokenizer.json", "tiktoken"])
def test_conversion_keeps_all_ids(file, ids_of, tmp_path, to):
    card = convert(file, tmp_path, to)
    assert card.converted_from == "tekken.json" and card.vocab == open_vocabulary(file).size
    if to == "tokenizer.json":
        copy = Tokenizer(tmp_path)
        assert all(copy.encode(text) == ids_of(text) for text in [*TEXTS, *HARD_TEXTS])


def test_a_folder_with_a_tekken_json_is_a_tokenizer(file, tmp_path):
    (tmp_path / "tekken.json").write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert Tokenizer(tmp_path).encode(TEXTS[0]) == opened(file).encode(TEXTS[0])


def test_shards_get_a_tokenizer_json_that_the_trainer_reads(file, tmp_path):
    import pyarrow as pa

    from llmcurate.base.tokenizer_file import load_tokenizer
    from tokenize_kit.shards.writer import Layout, encode_shards
    from train.data.shards import read_shards

    batch = pa.record_batch({"id": ["a"], "source": ["s"], "lang": ["en"], "text": TEXTS[:1]})
    encode_shards(iter([batch]), file, tmp_path, Layout())
    ids = load_tokenizer(tmp_path / "tokenizer.json").encode(TEXTS[0]).ids
    assert np.array_equal(read_shards(tmp_path).tokens[0][:-1], ids)


def damaged(change):
    def apply(content):
        change(content)
        return json.dumps(content)

    return apply


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damaged(lambda c: c["config"].pop("pattern")), "no 'pattern'"),
        (damaged(lambda c: c["config"].update(pattern="(a")), "parenthesis"),
        (damaged(lambda c: c["vocab"].pop(7)), "token 7 of vocab"),
        (damaged(lambda c: c["vocab"][260].pop("rank")), "no 'rank'"),
        (damaged(lambda c: c["vocab"][3].update(token_bytes="!")), "base64"),
        (damaged(lambda c: c["vocab"].__setitem__(3, None)), "NoneType"),
        (damaged(lambda c: c["config"].update(default_vocab_size=10**6)), "default_vocab_size"),
        (damaged(lambda c: c["config"].update(default_num_special_tokens=5)), "special tokens"),
        (
            damaged(lambda c: c.update(special_tokens=[{"rank": 1, "token_str": "x"}])),
            "order of rank",
        ),
        (lambda c: json.dumps(c)[:9000], "line 1"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tokens, tmp_path, damage, reason):
    (tmp_path / "tekken.json").write_text(damage(content_of(tokens)))
    with pytest.raises(
        UsageError, match=rf"tekken\.json: a damaged tekken\.json \(.*{reason}"
    ) as e:
        Tokenizer(tmp_path / "tekken.json")
    assert "\n" not in str(e.value)


def test_the_trainer_says_how_to_convert_it(file):
    from llmcurate.base.tokenizer_file import load_tokenizer

    with pytest.raises(UsageError, match="llmcurate tokenizer convert makes"):
        load_tokenizer(file)


def test_a_tokenizer_json_with_such_a_word_is_still_one(tmp_path):
    tokenizer = train_bpe(iter(TEXTS * 9), vocab=300, digits="single", special_tokens=[END])
    tokenizer.add_tokens(["token_bytes"])
    content = json.loads(tokenizer.to_str())
    content["model"]["vocab"]["token_bytes"] = content["added_tokens"][0]["id"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert '"token_bytes"' in (tmp_path / "tokenizer.json").read_text()
    assert Tokenizer(tmp_path).encode(TEXTS[0]) == tokenizer.encode(TEXTS[0]).ids
