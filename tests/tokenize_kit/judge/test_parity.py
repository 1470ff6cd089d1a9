"""Lengths against a baseline, languages against each other, and files of ranks as candidates."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from llmcurate.base.errors import LlmcurateError
from tokenize_kit.formats.tokenizer_json import from_letters
from tokenize_kit.judge.candidate import examine_vocabulary, open_candidate
from tokenize_kit.judge.compare import compare, cut_text
from tokenize_kit.learn.training import train_tokenizer

TEXTS = ["the cat sat on the mat, then that", "กินข้าวที่บ้าน กินที่บ้าน", "the mat"] * 6
LANGUAGES = ["en", "th", None] * 6


def packed(texts):
    raw = [text.encode() for text in texts]
    return np.frombuffer(bytearray().join(raw), np.uint8), np.cumsum(
        [0, *map(len, raw)], dtype=np.int64
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """small/, large/ and large.tiktoken, the same merges as large/ has."""
    folder = tmp_path_factory.mktemp("parity")
    train_tokenizer(TEXTS, folder / "small", vocab=270, pattern="o200k", digits="triples")
    train_tokenizer(TEXTS, folder / "large", vocab=320, pattern="o200k", digits="triples")
    vocab = json.loads((folder / "large" / "tokenizer.json").read_bytes())["model"]["vocab"]
    special = len([word for word in vocab if word.startswith("<|")])
    words = [word for word in sorted(vocab, key=vocab.get) if not word.startswith("<|")]
    assert [vocab[word] - special for word in words] == list(range(len(words)))
    lines = [b"%s %d" % (base64.b64encode(from_letters(w)), n) for n, w in enumerate(words)]
    (folder / "large.tiktoken").write_bytes(b"\n".join(lines) + b"\n")
    return folder


def test_lengths_are_shares_of_the_baseline_by_language_too(folder):
    batch = (*packed(TEXTS), {"lang": LANGUAGES})
    small, large = compare([folder / "small", folder / "large"], [batch], ["lang"], baseline=1)[
        "tokenizers"
    ]
    assert large["nsl"] == 1 and small["nsl"] == small["tokens"] / large["tokens"] > 1
    for small_row, large_row in zip(small["lang"], large["lang"], strict=True):
        assert small_row["label"] == large_row["label"]
        assert small_row["nsl"] == small_row["tokens"] / large_row["tokens"]


def test_without_a_baseline_there_is_no_nsl(folder):
    (results,) = compare([folder / "small"], [(*packed(TEXTS), {})], ["lang"])["tokenizers"]
    assert "nsl" not in results


def test_ranks_are_judged_as_the_same_merges_in_a_tokenizer_json(folder):
    batch = (*packed(TEXTS), {"lang": LANGUAGES})
    paths = [folder / "large", folder / "large.tiktoken"]
    results = compare(paths, [batch], ["lang"], show=2, pattern="o200k")
    own = ("tokenizer", "encode_mb_per_cpu_second", "decode_mb_per_cpu_second")
    numbered = ("longest", "unreachable_examples")
    by_ranks, by_merges = (
        {k: v for k, v in row.items() if k not in (*own, *numbered)}
        for row in results["tokenizers"]
    )
    assert by_ranks == by_merges and by_ranks["lost"] == 0
    for sample in results["shown"]:
        assert sample["pieces"][0] == sample["pieces"][1]


def test_every_token_of_ranks_is_named(folder):
    ranks = open_candidate(folder / "large.tiktoken", "o200k")
    assert "".join(piece for piece, _ in cut_text(ranks, TEXTS[1])) == TEXTS[1]
    assert ranks.special == {max(ranks.tokens)}
    assert ranks.decode([max(ranks.tokens)]) == "<|endoftext|>"
    assert examine_vocabulary(ranks).unreachable == {}


def test_ranks_without_a_pattern_are_refused(folder):
    with pytest.raises(LlmcurateError, match=r"large\.tiktoken: .*give --pattern, one of gpt2"):
        open_candidate(folder / "large.tiktoken")


def test_any_language_can_be_the_pivot(folder):
    batch = (*packed(TEXTS), {"lang": LANGUAGES})
    (result,) = compare([folder / "large"], [batch], ["lang"], pivot="th")["tokenizers"]
    thai, english = result["lang"]
    assert thai["premium_a_text"] == 1
    assert english["premium_a_byte"] == pytest.approx(
        english["tokens"] / english["bytes"] / (thai["tokens"] / thai["bytes"])
    )


def test_costs_are_tokens_times_the_price_and_words_are_for_texts_with_spaces(folder):
    batch = (*packed(TEXTS), {"lang": LANGUAGES})
    (result,) = compare([folder / "large"], [batch], ["lang"], price=4.0, context=1000)[
        "tokenizers"
    ]
    thai, english = result["lang"]
    price = 4.0 * english["tokens"] / 1e6  # of these texts
    for unit in ("characters", "words"):
        cost = english[f"price_a_million_{unit}"] * english[unit] / 1e6
        assert cost == pytest.approx(price)
    characters = 1000 * english["characters"] / english["tokens"]
    assert english["context_characters"] == round(characters)
    assert english["context_words"] == round(1000 * english["words"] / english["tokens"])
    assert english["context_pages"] == round(characters) / 1800
    assert thai["price_a_million_words"] is None and thai["context_words"] is None
    assert thai["context_characters"] > 0


def test_shared_tokens_are_those_of_the_same_bytes(folder):
    paths = [folder / "small", folder / "large", folder / "large.tiktoken"]
    pairs = compare(paths, [(*packed(["x"]), {})], pattern="o200k")["overlaps"]
    spelled = []
    for name in ("small", "large"):
        parts = json.loads((folder / name / "tokenizer.json").read_bytes())
        spelled.append({t for t in parts["model"]["vocab"] if not t.startswith("<|")})
    shared = len(spelled[0] & spelled[1])
    assert pairs[0]["shared"] == pairs[1]["shared"] == shared
    assert pairs[0]["jaccard"] == shared / len(spelled[0] | spelled[1])
    assert pairs[2] == {"first": 1, "second": 2, "shared": len(spelled[1]), "jaccard": 1.0}
