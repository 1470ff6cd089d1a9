"""Parity-aware BPE: merges as a plain reference of the paper's rule chooses them."""

from __future__ import annotations

import bz2
import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenize_kit.learn.reference_bpe import cut, renewed, symbols
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.errors import TokenizerError
from tokenize_kit.formats.tokenizer_json import ORDER, load_tokenizer
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.parity import Parity, learn_parity
from tokenize_kit.learn.training import train_on_corpus

TEXT = st.text(st.sampled_from("abc "), max_size=25)
PARTS = TrainingOptions().counted_parts
ROWS = [
    *[(f"the {k} low lower lowest newer newest, {k * k} times. ", "en") for k in range(60)],
    *[(f"ภาษาไทย {k} ครับ ", "th") for k in range(20)],
    *[(f"der {k} und die {k + 1} Wörter ", "de") for k in range(10)],
]


def by_hand(texts, parallel, size, least=2):
    """texts, parallel: lists of texts by group; None: how a group fares say tokens for what bz2
    leaves of its texts."""
    names, merges = [bytes([byte]) for byte in ORDER], []
    pieces = {group: symbols(cut(texts[group], PARTS)) for group in sorted(texts)}
    dev = {g: symbols(cut(parallel[g], PARTS)) for g in pieces} if parallel else pieces

    def length(counted):
        return sum(len(piece) * count for piece, count in counted.items())

    units = {g: len(parallel[g]) if parallel else compressed(texts[g]) for g in pieces}
    while len(names) < size:
        best = {}
        for group, counted in pieces.items():
            pairs = Counter()
            for piece, count in counted.items():
                for pair in pairwise(piece):
                    pairs[pair] += count
            if pairs and max(pairs.values()) >= least:
                best[group] = min(pairs, key=lambda pair: (-pairs[pair], pair))
        worst = max(best, key=lambda g: length(dev[g]) / units[g], default=None)
        if worst is None:
            break
        pair = best[worst]
        token = names[pair[0]] + names[pair[1]]
        if token not in names:
            names.append(token)
        merges.append(pair)
        for group in pieces:
            pieces[group] = renewed(pieces[group], pair, names.index(token))
            if parallel:
                dev[group] = renewed(dev[group], pair, names.index(token))
        dev = dev if parallel else pieces
    return names, merges


def compressed(texts):
    raw = b"".join(sorted((t.encode() for t in texts), key=xxhash.xxh3_64_intdigest))
    return len(raw) * (len(bz2.compress(raw)) / len(raw))


def learned(texts, parallel, size):
    groups = {group: number for number, group in enumerate(sorted(texts, reverse=True))}
    documents = [(text, groups[group]) for group in texts for text in texts[group]]
    parity = Parity(groups, parallel or None)
    return learn_parity(documents, parity, PARTS, None, size, [], 2, 1 << 40)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from("xyz"), st.lists(TEXT, min_size=1, max_size=4), min_size=1),
    st.integers(257, 290),
)
def test_merges_are_those_of_the_rule_by_hand(texts, size):
    texts = {g: [*t, "a"] for g, t in texts.items()}  # no group is empty
    assert learned(texts, None, size) == by_hand(texts, None, size)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from("xyz"), st.lists(TEXT, min_size=1, max_size=4), min_size=1),
    st.lists(TEXT, min_size=3, max_size=3),
    st.integers(257, 280),
)
def test_parallel_texts_say_whose_turn_it_is(texts, parallel, size):
    dev = dict(zip("xyz", ([text] for text in parallel), strict=True))
    dev["y"] *= 2
    texts = {g: [*t, "a"] for g, t in texts.items()}
    assert learned(texts, dev, size) == by_hand(texts, dev, size)


def trained(rows, folder, **settings):
    batches = [pa.table({"text": [t for t, _ in rows], "lang": [g for _, g in rows]})]
    options = TrainingOptions(**{"sizes": (400,), "parity_by": "lang"} | settings)
    (card,) = train_on_corpus(lambda: iter(batches[0].to_batches()), folder, options)
    return load_tokenizer(folder / "tokenizer.json"), card


def test_the_order_of_documents_decides_nothing(tmp_path):
    a, card = trained(ROWS, tmp_path / "a")
    b, _ = trained(ROWS[::-1], tmp_path / "b")
    assert a.to_str() == b.to_str()
    assert card["algorithm"] == "parity-aware byte-level BPE by lang, in tokens a compressed byte"
    assert card["parity"]["values"]["de"]["documents"] == 10 and card["mixture"] is None


def test_both_encoders_give_the_same_ids_and_texts_come_back(tmp_path):
    tokenizer, _ = trained(ROWS, tmp_path)
    encoder, texts = Encoder(tokenizer), [text for text, _ in ROWS]
    raw = [text.encode() for text in texts]
    data, offsets = np.frombuffer(bytearray().join(raw), np.uint8), np.cumsum([0, *map(len, raw)])
    theirs = [tokenizer.encode(text).ids for text in texts]
    assert encoder.reason is None
    assert encoder.encode(data, offsets)[0].tolist() == [i for ids in theirs for i in ids]
    assert [tokenizer.decode(ids) for ids in theirs] == texts


def write(path, rows):
    path.write_text("".join(json.dumps({"text": t, "lang": g}) + "\n" for t, g in rows))
    return str(path)


def test_parallel_texts_take_more_alike_tokens_than_by_plain_bpe(tmp_path):
    said = [("the lowest times", "en"), ("ภาษาไทย ครับ", "th"), ("der und die Wörter", "de")]
    dev = write(tmp_path / "dev.jsonl", said)
    fair, _ = trained(ROWS, tmp_path / "fair", sizes=(285,), parity_dev=dev)
    plain, _ = trained(ROWS, tmp_path / "plain", sizes=(285,), parity_by=None)
    sizes = [[len(t.encode(text).ids) for text, _ in said] for t in (fair, plain)]
    assert max(sizes[0]) < max(sizes[1]) and min(sizes[0]) > min(sizes[1])


def test_a_file_of_parallel_texts_is_read_and_named_in_the_card(tmp_path):
    dev = write(tmp_path / "dev.jsonl", [("low times", "en"), ("ภาษาไทย", "th"), ("Wort", "de")])
    _, card = trained(ROWS, tmp_path, parity_dev=dev)
    assert card["algorithm"].endswith("in tokens a parallel text")
    assert len(card["parity"]["dev_sha256"]) == 64


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "low"}', "line 1: give a JSON object with text and lang"),
        ("[]", "line 1: give a JSON object with text and lang"),
        ('{"text": "low", "lang": "en"}', "no text of 'de', which the corpus has"),
    ],
)
def test_parallel_texts_that_lack_something_are_refused(tmp_path, line, reason):
    (tmp_path / "dev.jsonl").write_text(line + "\n")
    with pytest.raises(TokenizerError, match=reason):
        trained(ROWS, tmp_path, parity_dev=str(tmp_path / "dev.jsonl"))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"backend": "tokenizers"}, "parity-by: only for the model bpe and the backend own"),
        ({"model": "wordpiece"}, "parity-by: only for the model bpe and the backend own"),
        ({"superwords": 300}, "parity-by and superwords: give one of them"),
        ({"weights": "lang=en:2"}, "parity-by and weights: give one of them"),
        ({"parity_by": None, "parity_dev": "x"}, "parity-dev: only with parity-by"),
    ],
)
def test_what_does_not_go_with_parity_is_refused(changed, reason):
    with pytest.raises(TokenizerError, match=reason):
        TrainingOptions(**{"sizes": (400,), "parity_by": "lang"} | changed)


def test_a_column_that_no_document_has_is_named(tmp_path):
    with pytest.raises(TokenizerError, match="no document has a column 'tongue'"):
        trained(ROWS, tmp_path, parity_by="tongue")
